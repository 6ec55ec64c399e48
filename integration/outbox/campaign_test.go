package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/integration/crash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	rows    = flag.Int("outbox.rows", 1500, "rows of the campaign, for each database")
	writers = flag.Int("outbox.writers", 20, "writers of the campaign")
	kills   = flag.Int("outbox.kills", 6, "kills of relays, databases and Redis in the campaign")
	seed    = flag.Uint64("outbox.seed", 0, "of the campaign's faults; 0 is random")
)

// A config configures a relay process, which is this program started again.
type config struct {
	URL, Prefix, Driver, DSN string
	Dialect                  outbox.Dialect
}

// A report of a relay process: it runs.
type report struct{ Running bool }

func relayMain(c config) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	slog.SetLogLoggerLevel(slog.LevelError)
	db, err := sql.Open(c.Driver, c.DSN)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ob := outbox.New(db, c.Dialect, nil)
	peer, err := worqr.Open(c.URL, &worqr.Options{Prefix: c.Prefix, Lease: time.Second, Drain: time.Second})
	if err == nil {
		err = ob.Handle(peer)
	}
	if err == nil {
		_ = json.NewEncoder(os.Stdout).Encode(report{true})
		err = peer.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (d *database) relay(t testing.TB, url, prefix string) *crash.Process[report] {
	p := crash.Launch[report](t, config{url, prefix, d.driver, d.dsn, d.dialect})
	p.Next()
	return p
}

// If a relay is paused, another takes over. The paused one comes back, and what it sends isn't added again.
func TestTakeover(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		server := redistest.Start(t)
		r := prepare(t, d, server.URL(), "p", outbox.Options{}) // doesn't relay
		relays := []*crash.Process[report]{d.relay(t, server.URL(), "p"), d.relay(t, server.URL(), "p")}
		var want []string
		for round := range 6 {
			for n := range 50 {
				want = append(want, fmt.Sprint(round, "-", n))
			}
			r.add(want[len(want)-50:]...)
			if round > 0 {
				relays[round%2].Stop()
			}
			r.sent(want...)
			if round > 0 {
				relays[round%2].Continue()
			}
		}
	}, kinds...)
}

// The relay doesn't hold rows while it sends a COMMIT: if it stalled before that, no other could delete them.
func TestDeleteEndsByItself(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{})
		for _, set := range []string{"log_output = 'TABLE'", "general_log = ON"} {
			redistest.Sure(r.db.Exec("SET GLOBAL " + set))(t)
		}
		r.add("a", "b")
		r.sent("a", "b")
		redistest.Sure(r.db.Exec("SET GLOBAL general_log = OFF"))(t)
		rows := redistest.Sure(r.db.Query("SELECT thread_id, argument FROM mysql.general_log ORDER BY event_time"))(t)
		defer func() { _ = rows.Close() }()
		deletes, open := 0, map[int64]bool{} // by connection
		for rows.Next() {
			var conn int64
			var said string
			is.NoErr(rows.Scan(&conn, &said))
			switch said = strings.ToUpper(said); {
			case strings.HasPrefix(said, "START TRANSACTION"):
				open[conn] = true
			case said == "COMMIT", said == "ROLLBACK":
				open[conn] = false
			case strings.HasPrefix(said, "DELETE O FROM (SELECT 0"):
				deletes++
				is.True(!open[conn])
			}
		}
		is.NoErr(rows.Err())
		is.True(deletes > 0)
	}, mariadb)
}

// Writers add rows and roll back; relays, databases and Redis are killed, and Redis is full in between. What was committed is
// added once, what was rolled back isn't, and rows of writers that take turns are in order.
func TestCampaign(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			campaign(t, k)
		})
	}
}

func campaign(t *testing.T, k *kind) {
	is := is.New(t)
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d", s)
	random := rand.New(rand.NewPCG(s, 1))
	var database *server
	if k != sqlite {
		database = own(t, k)
	}
	d := create(t, k, database)
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	r := prepare(t, d, redis.URL(), "p", outbox.Options{})
	relays := make([]*crash.Process[report], 3)
	for i := range relays {
		relays[i] = d.relay(t, redis.URL(), "p")
	}

	var mu sync.Mutex // protects the two maps
	committed, unsure := map[string]bool{}, map[string]bool{}
	var turn sync.Mutex
	turns, written := 0, atomic.Int64{}
	var all sync.WaitGroup
	for w := range *writers {
		all.Go(func() {
			for n := 0; written.Add(1) <= int64(*rows); n++ {
				payload := fmt.Sprintf("w %d %d", w, n)
				if w%4 == 0 { // takes turns
					turn.Lock()
					turns++
					payload = fmt.Sprintf("t %08d", turns)
				}
				back := n%5 == 4
				done, maybe := write(t.Context(), r, payload, back)
				if w%4 == 0 {
					turn.Unlock()
				}
				mu.Lock()
				committed[payload], unsure[payload] = done, maybe
				mu.Unlock()
				if !done && !back {
					time.Sleep(20 * time.Millisecond) // the database is down
				}
			}
		})
	}
	// The faults are spread over the rows.
	counts := map[string]int{}
	for n := range *kills {
		for int(written.Load()) < *rows*(n+1)/(*kills+2) {
			time.Sleep(5 * time.Millisecond)
		}
		switch what := random.IntN(10); {
		case what < 5 || k == sqlite && what < 7:
			i := random.IntN(len(relays))
			relays[i].Kill()
			relays[i] = d.relay(t, redis.URL(), "p")
			counts["relays"]++
		case what < 7:
			database.kill()
			peertest.Must(t, database.launch())
			counts["databases"]++
		case what < 8:
			i := random.IntN(len(relays))
			relays[i].Stop()
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			relays[i].Continue()
			counts["pauses"]++
		case what < 9:
			redis.Kill()
			redis.Restart(t)
			counts["Redis"]++
		default:
			conn := redistest.Dial(t, redis.URL())
			redistest.Do(t, conn, "CONFIG", "SET", "maxmemory", "1")
			time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			redistest.Do(t, conn, "CONFIG", "SET", "maxmemory", "0")
			counts["full"]++
		}
	}
	all.Wait()
	began := time.Now()
	for r.rows() > 0 {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("%d rows are left: %s", r.rows(), found(t, r))
		}
		time.Sleep(50 * time.Millisecond)
	}
	is.Equal(redistest.Sure(peertest.Length(r.Aside(t.Context())))(t), 0)
	sent := map[string]int{}
	var order []string
	for _, p := range r.waiting() {
		sent[p]++
		if strings.HasPrefix(p, "t ") {
			order = append(order, p)
		}
	}
	lost, wrong, twice, kept := 0, 0, 0, 0
	for p, done := range committed {
		switch n := sent[p]; {
		case n == 0 && done:
			lost++
		case n > 0 && !done && !unsure[p]:
			wrong++
		case n > 1:
			twice++
		case n == 1:
			kept++
		}
	}
	t.Logf("%s: %d rows written, %d sent, of them %d in turns; faults %v", k.name, len(committed), kept, len(order), counts)
	is.Equal(lost, 0)  // of committed transactions
	is.Equal(wrong, 0) // of transactions that were rolled back
	is.Equal(twice, 0)
	is.True(slices.IsSorted(order))
	is.True(len(order) > 0)
}

var errBack = errors.New("rolled back")

// write adds a row in a transaction, and reports whether that is committed, or may be.
func write(ctx context.Context, r *rig, payload string, back bool) (done, maybe bool) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	reached := false
	err := r.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: []byte(payload)}); err != nil {
			return err
		}
		if back {
			return errBack
		}
		reached = true
		return nil
	})
	return err == nil, reached && err != nil
}
