package outbox

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	measured = flag.Duration("outbox.measure", 0, "how long TestMeasure adds rows beside an open transaction; 0 skips it")
	rate     = flag.Int("outbox.rate", 5000, "rows a second in TestMeasure")
)

// quantiles returns a summary of durations.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))].Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v, max %v", at(.5), at(.99), at(1))
}

// TestMeasure measures commits, the time from a commit to the start of its task, and many short transactions beside a long one.
func TestMeasure(t *testing.T) {
	if *measured == 0 {
		t.Skip("measures with -outbox.measure=1m")
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { measure(t, k) })
	}
}

func measure(t *testing.T, k *kind) {
	is := is.New(t)
	ctx := t.Context()
	var own1 *server
	if k != sqlite {
		own1 = own(t, k)
	}
	server := redistest.Start(t)
	r := prepare(t, create(t, k, own1), server.URL(), "p", outbox.Options{})
	r.db.SetMaxOpenConns(40)
	r.db.SetMaxIdleConns(40)

	var bare, added []time.Duration
	insert := "INSERT INTO worqr_outbox (format, queue, payload, task, bytes) VALUES (?, ?, ?, ?, ?)"
	if k == postgres {
		insert = "INSERT INTO worqr_outbox (format, queue, payload, task, bytes) VALUES ($1, $2, $3, $4, $5)"
	}
	text := `{"Key":"MDE5ODAwMDAtMDAwMC03MDAwLTgwMDAtMDAwMDAwMDAwMDAw","Nonce":"01980000-0000-7000-8000-000000000000"}`
	payload := make([]byte, 100)
	for range 1000 {
		began := time.Now()
		tx := redistest.Sure(r.db.BeginTx(ctx, nil))(t)
		redistest.Sure(tx.ExecContext(ctx, insert, 1, "tasks", payload, text, 300))(t)
		is.NoErr(tx.Commit())
		bare = append(bare, time.Since(began))
		began = time.Now()
		tx = redistest.Sure(r.db.BeginTx(ctx, nil))(t)
		redistest.Sure(r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: payload}))(t)
		is.NoErr(tx.Commit())
		added = append(added, time.Since(began))
	}
	t.Logf("transactions with a bare insert %s; with Add %s", quantiles(bare), quantiles(added))
	redistest.Sure(r.db.Exec("DELETE FROM worqr_outbox"))(t)

	var mu sync.Mutex
	var waits []time.Duration
	r.queue.Handle(func(_ context.Context, task *worqr.Task) error {
		if ns, err := strconv.ParseInt(task.Headers["committed"], 10, 64); err == nil {
			mu.Lock()
			waits = append(waits, time.Since(time.Unix(0, ns)))
			mu.Unlock()
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 100})
	take := func() string {
		mu.Lock()
		defer mu.Unlock()
		said := fmt.Sprintf("%d tasks, %s", len(waits), quantiles(waits))
		waits = nil
		return said
	}
	peertest.Run(t, r.peer)
	add := func(n int) {
		for range n {
			err := r.InTx(ctx, func(tx *sql.Tx) error {
				_, err := r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: payload, Headers: map[string]string{"committed": fmt.Sprint(time.Now().UnixNano())}})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	for range 300 {
		add(1)
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	t.Logf("just before the commit to the start, 80 commits a second: %s", take())

	if k != sqlite {
		long := redistest.Sure(r.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
		redistest.Sure(r.Add(ctx, long, "late", worqr.TaskSpec{Payload: payload}))(t)
		var n int
		is.NoErr(long.QueryRow("SELECT count(*) FROM worqr_outbox").Scan(&n))
		defer func() { is.NoErr(long.Commit()) }()
	}
	var written atomic.Int64
	ctxEnd, cancel := context.WithTimeout(ctx, *measured)
	defer cancel()
	var all sync.WaitGroup
	began := time.Now()
	for range 10 {
		all.Go(func() { // transactions of ten rows
			for ctxEnd.Err() == nil {
				if due := float64(*rate) * time.Since(began).Seconds(); float64(written.Load()) >= due {
					time.Sleep(time.Millisecond)
					continue
				}
				written.Add(10)
				now := fmt.Sprint(time.Now().UnixNano())
				err := r.InTx(ctx, func(tx *sql.Tx) error {
					for range 10 {
						if _, err := r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: payload, Headers: map[string]string{"committed": now}}); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for ctxEnd.Err() == nil {
		select {
		case <-ctxEnd.Done():
		case <-time.After(*measured / 6):
		}
		mu.Lock()
		done := len(waits)
		mu.Unlock()
		scan := time.Now()
		var id int64
		_ = r.db.QueryRow("SELECT id FROM worqr_outbox WHERE reason IS NULL AND format <= 1 ORDER BY id LIMIT 1").Scan(&id)
		t.Logf("after %v: %d rows written; since the last line %d started: %s; a scan from the front %v", time.Since(began).Round(time.Second), written.Load(), done, take(), time.Since(scan).Round(10*time.Microsecond))
	}
	all.Wait()
	t.Logf("%.0f rows a second were written", float64(written.Load())/time.Since(began).Seconds())
	began = time.Now()
	for r.rows() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("the rest was sent within %v", time.Since(began).Round(time.Millisecond))
}
