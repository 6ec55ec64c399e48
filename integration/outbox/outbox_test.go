package outbox

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) {
	if c, given := child.Given[config](); given {
		os.Exit(relayMain(c))
	}
	os.Exit(redistest.MainOfMany(func() int {
		defer stopAll()
		return m.Run()
	}))
}

// A rig is an outbox, and the queue that it sends to.
type rig struct {
	*outbox.Outbox
	t     testing.TB
	db    *sql.DB
	peer  *worqr.Peer
	queue *worqr.Queue
	said  peertest.Journal

	prefix string
}

// prepare migrates a database, and opens a peer that relays once it runs.
func prepare(t testing.TB, d *database, url, prefix string, opts outbox.Options) *rig {
	t.Helper()
	r := &rig{t: t, db: d.open(t), prefix: prefix}
	opts.Logger = r.said.Logger()
	r.Outbox = outbox.New(r.db, d.dialect, &opts)
	peertest.Must(t, r.Migrate(t.Context()))
	r.peer = peertest.OpenAt(t, url, worqr.Options{Prefix: prefix, Sources: []inspect.Source{r.Source()}})
	peertest.Must(t, r.Handle(r.peer))
	r.queue = r.peer.Queue("tasks")
	return r
}

// relaying is prepare for a peer that runs.
func relaying(t testing.TB, d *database, opts outbox.Options) *rig {
	t.Helper()
	r := prepare(t, d, redistest.URL(), redistest.Prefix(t), opts)
	peertest.Run(t, r.peer)
	return r
}

// add adds tasks in a transaction of their own.
func (r *rig) add(payloads ...string) {
	r.t.Helper()
	peertest.Must(r.t, r.InTx(r.t.Context(), func(tx *sql.Tx) error {
		for _, p := range payloads {
			if _, err := r.Add(r.t.Context(), tx, "tasks", worqr.TaskSpec{Payload: []byte(p)}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// waiting returns the payloads of the tasks that wait in Redis, in order.
func (r *rig) waiting() (all []string) {
	r.t.Helper()
	for task := range redistest.Each(r.t, r.queue.Named(r.t.Context())) {
		all = append(all, string(task.Payload))
	}
	return all
}

// sent waits until the tasks with the payloads, and no others, wait in Redis, and all rows are gone.
func (r *rig) sent(payloads ...string) {
	r.t.Helper()
	var got []string
	peertest.Eventually(r.t, fmt.Sprintf("%d tasks are sent", len(payloads)), func() bool { return r.rows() == 0 })
	if got = r.waiting(); !slices.Equal(got, payloads) {
		r.t.Fatalf("got %q, want %q", got, payloads)
	}
}

// rows counts the rows that aren't set aside.
func (r *rig) rows() (n int) {
	r.t.Helper()
	peertest.Must(r.t, r.db.QueryRow("SELECT count(*) FROM worqr_outbox WHERE reason IS NULL").Scan(&n))
	return n
}

// What is committed is sent, with all that it has. What is rolled back isn't.
func TestTransactions(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{})
		ctx, at := t.Context(), time.Now().Add(time.Hour).Truncate(time.Millisecond)
		var given, fresh string
		errNo := errors.New("no")
		add := func(payload string) func(tx *sql.Tx) error {
			return func(tx *sql.Tx) (err error) {
				given, err = r.Add(ctx, tx, "tasks", worqr.TaskSpec{
					Payload: []byte(payload), Key: "k\xff?", At: at, Headers: map[string]string{"a\xfe": "\x00"}, Expires: at.Add(time.Hour), Timeout: time.Minute, MaxRetries: 3,
				})
				return err
			}
		}
		is.Equal(r.InTx(ctx, func(tx *sql.Tx) error { return errors.Join(add("rolled back")(tx), errNo) }).Error(), errNo.Error())
		func() {
			defer func() { is.Equal(recover(), "oh") }()
			_ = r.InTx(ctx, func(tx *sql.Tx) error {
				is.NoErr(add("panicked")(tx))
				panic("oh")
			})
		}()
		is.NoErr(r.InTx(ctx, add("\x00?\xff")))
		is.NoErr(r.InTx(ctx, func(tx *sql.Tx) (err error) {
			fresh, err = r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: []byte("fresh")})
			return err
		}))
		is.Equal(given, "k\xff?")
		is.Equal(len(fresh), 36)
		peertest.Eventually(t, "they're sent", func() bool { return r.rows() == 0 })
		got := map[string]inspect.NamedTask{}
		for task := range redistest.Each(t, r.queue.Named(ctx)) {
			got[task.Key] = task
		}
		is.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(slices.Values([]string{fresh, given})))
		is.Equal(string(got[given].Payload), "\x00?\xff")
		is.Equal(got[given].Headers, map[string]string{"a\xfe": "\x00"})
		is.True(got[given].DueAt.Equal(at))
		_, err := r.Add(ctx, r.db, "tasks", worqr.TaskSpec{Payload: []byte("x"), Once: "x"})
		is.True(errors.Is(err, worqr.ErrInvalid))
		for _, bad := range []string{"a b", "a\xff"} {
			_, err = r.Add(ctx, r.db, bad, worqr.TaskSpec{Payload: []byte("x")})
			is.True(errors.Is(err, worqr.ErrBadName))
		}
		_, err = r.Add(ctx, r.db, "outbox", worqr.TaskSpec{Payload: []byte("x")})
		is.True(errors.Is(err, worqr.ErrInvalid))
	}, kinds...)
}

// A nudge wakes the relay at once. Many take few calls.
func TestNudge(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{Poll: time.Hour})
		r.add("a")
		r.sent("a")
		for range 10_000 {
			r.Nudge()
		}
		r.add("b", "c")
		r.sent("a", "b", "c")
		stats, err := r.peer.Queue("outbox").Stats(t.Context())
		is.NoErr(err)
		is.True(stats.Tokens < 1000)
	}, kinds...)
}

// Nudges don't use up the polls that are planned.
func TestNudgesLeavePolls(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{})
		var all []string
		for n := range 100 {
			all = append(all, fmt.Sprint(n))
			r.add(all[n])
			r.sent(all...)
		}
		q := r.peer.Queue("outbox")
		peertest.Eventually(t, "the last run has ended", func() bool { return peertest.Stats(t, q).Running == 0 })
		for task := range redistest.Each(t, q.Recurring(t.Context())) {
			is.True(!task.Current.IsZero() || !task.Next.IsZero() && time.Until(task.Next) < 10*time.Second) // or the next has begun
		}
	}, sqlite)
}

// Without nudges, a poll finds rows.
func TestPoll(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{})
		for _, all := range [][]string{{"a"}, {"a", "b"}} {
			_, err := r.Add(t.Context(), r.db, "tasks", worqr.TaskSpec{Payload: []byte(all[len(all)-1])})
			is.NoErr(err)
			r.sent(all...)
		}
	}, sqlite)
}

// Writers that take turns have their tasks in order, whoever relays, and although others write at the same time.
func TestOrder(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		r := relaying(t, d, outbox.Options{})
		other := prepare(t, d, redistest.URL(), r.prefix, outbox.Options{})
		peertest.Run(t, other.peer)
		var turn sync.Mutex
		var want []string
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for range 50 {
					turn.Lock()
					want = append(want, fmt.Sprint(len(want)))
					err := []*rig{r, other}[w%2].InTx(t.Context(), func(tx *sql.Tx) error {
						_, err := r.Add(t.Context(), tx, "tasks", worqr.TaskSpec{Payload: []byte(want[len(want)-1])})
						return err
					})
					turn.Unlock()
					if err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for range 20 {
					err := r.InTx(t.Context(), func(tx *sql.Tx) error {
						_, err := r.Add(t.Context(), tx, "others", worqr.TaskSpec{Payload: []byte("x")})
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		r.sent(want...)
	}, kinds...)
}

// A transaction that commits late has a lower id than what was sent. It's sent before those that begin after its commit, and
// the relay doesn't wait for it.
func TestLateCommit(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{})
		late, err := r.db.BeginTx(t.Context(), nil)
		is.NoErr(err)
		_, err = r.Add(t.Context(), late, "tasks", worqr.TaskSpec{Payload: []byte("late")})
		is.NoErr(err)
		var early []string
		for n := range 100 {
			early = append(early, fmt.Sprint(n))
		}
		r.add(early...)
		r.sent(early...)
		is.NoErr(late.Commit())
		r.add("after")
		r.sent(append(early, "late", "after")...)
	}, postgres, mariadb)
}

// A row that Redis refuses for good is set aside. The others are sent, in order.
func TestRefused(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		ctx := t.Context()
		r := relaying(t, d, outbox.Options{MaxPayload: worqr.MaxPayloadSize})
		var all, good []string
		for n := range 40 {
			payload := fmt.Sprint(n)
			if n%13 == 5 {
				payload = strings.Repeat("x", worqr.DefaultMaxPayload+1)
			} else {
				good = append(good, payload)
			}
			all = append(all, payload)
		}
		r.add(all...)
		r.sent(good...)
		var ids []int64
		for row := range redistest.Each(t, r.Aside(ctx)) {
			ids = append(ids, row.ID)
			is.Equal(row.Queue, "tasks")
			is.True(strings.Contains(row.Reason, "too large"))
			is.Equal(len(row.Task.Payload), worqr.DefaultMaxPayload+1)
			is.True(row.Age >= 0 && row.Age < time.Minute)
		}
		is.Equal(len(ids), 3)
		is.True(strings.Contains(found(t, r), "3 rows are set aside"))
		n, err := r.Retry(ctx, ids[0], ids[0]+1)
		is.NoErr(err)
		is.Equal(n, 1)
		peertest.Eventually(t, "it's refused again", func() bool { return r.rows() == 0 })
		n, err = r.Delete(ctx, ids[:2]...)
		is.NoErr(err)
		is.Equal(n, 2)
		is.Equal(redistest.Sure(peertest.Length(r.Aside(ctx)))(t), 1)
	}, kinds...)
}

// found returns the findings of the outbox.
func found(t testing.TB, r *rig) string {
	t.Helper()
	var text []string
	report, err := r.Source().Report(t.Context())
	if err != nil {
		return err.Error()
	}
	for _, f := range report.Findings {
		text = append(text, f.Text)
	}
	return strings.Join(text, "\n")
}

// Rows of a newer version are left and reported.
func TestNewerFormat(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{})
		_, err := r.db.Exec("INSERT INTO worqr_outbox (format, queue, payload, task, bytes) VALUES (2, 'tasks', 'x', 'new', 4)")
		is.NoErr(err)
		r.add("a")
		peertest.Eventually(t, "the other is sent", func() bool { return r.rows() == 1 })
		is.Equal(r.waiting(), []string{"a"})
		is.True(strings.Contains(found(t, r), "1 row is in a format"))
	}, kinds...)
}

// A row that is sent again, since its deletion was lost, isn't added again. Of equal unique tasks, one is. Tasks with one key
// are sent one after the other.
func TestNotAgain(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		r := relaying(t, d, outbox.Options{})
		ctx := t.Context()
		var text string
		is.NoErr(r.InTx(ctx, func(tx *sql.Tx) error {
			_, err := r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: []byte("a")})
			return errors.Join(err, tx.QueryRow("SELECT task FROM worqr_outbox").Scan(&text))
		}))
		r.sent("a")
		_, err := r.db.Exec("INSERT INTO worqr_outbox (format, queue, payload, task, bytes) VALUES (1, 'tasks', 'a', '" + text + "', 100)")
		is.NoErr(err)
		r.sent("a")
		is.NoErr(r.InTx(ctx, func(tx *sql.Tx) error {
			for _, p := range []string{"u", "v", "u"} {
				if _, err := r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: []byte(p), Unique: true}); err != nil {
					return err
				}
			}
			for _, p := range []string{"1", "2", "3"} {
				if _, err := r.Add(ctx, tx, "tasks", worqr.TaskSpec{Payload: []byte(p), Key: "k"}); err != nil {
					return err
				}
			}
			return nil
		}))
		r.sent("a", "u", "v", "3")
	}, kinds...)
}

// Several processes may migrate at once, and again.
func TestMigrate(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := outbox.New(d.open(t), d.dialect, nil).Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		r := relaying(t, d, outbox.Options{})
		r.add("a")
		r.sent("a")
	}, kinds...)
}

// If connections don't commit by themselves, the outbox commits what it does.
func TestWithoutAutocommit(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		off := *d
		off.dsn += "&autocommit=false"
		r := relaying(t, &off, outbox.Options{})
		r.add("a", "b")
		r.db = d.open(t) // sees only what is committed
		r.sent("a", "b")
		versions := 0
		peertest.Must(t, r.db.QueryRow("SELECT count(*) FROM worqr_outbox_versions").Scan(&versions))
		is.New(t).True(versions > 0)
	}, mariadb)
}

// A change that fails leaves nothing to the next transaction on its connection.
func TestFailedChange(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		other, db := d.open(t), d.open(t)
		for _, statement := range []string{"CREATE TABLE numbers (n int)", "INSERT INTO numbers VALUES (0)"} {
			redistest.Sure(other.Exec(statement))(t)
		}
		db.SetMaxOpenConns(1)
		_, err := outbox.New(db, d.dialect, nil).Retry(t.Context(), 1) // there is no table
		is.True(err != nil)
		tx := redistest.Sure(db.Begin())(t)
		defer func() { _ = tx.Rollback() }()
		var first, second int
		is.NoErr(tx.QueryRow("SELECT n FROM numbers").Scan(&first))
		redistest.Sure(other.Exec("UPDATE numbers SET n = 1"))(t)
		is.NoErr(tx.QueryRow("SELECT n FROM numbers").Scan(&second))
		is.Equal(second, first) // the isolation is the server's: repeatable read
	}, mariadb)
}

// If transactions are serializable, the database refuses a change that another one has crossed. It's repeated.
func TestSerializable(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		strict := *d
		strict.dsn += "&default_transaction_isolation=serializable"
		r := prepare(t, &strict, redistest.URL(), redistest.Prefix(t), outbox.Options{}) // doesn't relay
		r.add("a")
		var id int64
		is.NoErr(r.db.QueryRow("UPDATE worqr_outbox SET reason = 'a' RETURNING id").Scan(&id))
		tx := redistest.Sure(r.db.Begin())(t)
		redistest.Sure(tx.Exec("UPDATE worqr_outbox SET reason = 'b'"))(t)
		deleted := make(chan error, 1)
		go func() {
			n, err := r.Delete(t.Context(), id)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d rows are deleted", n)
			}
			deleted <- err
		}()
		peertest.Eventually(t, "the delete waits for the update", func() (waits bool) {
			is.NoErr(r.db.QueryRow("SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waits))
			return waits
		})
		is.NoErr(tx.Commit())
		is.NoErr(<-deleted)
	}, postgres)
}

// While Redis is down or full, rows wait.
func TestRedisOutage(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		r := prepare(t, d, server.URL(), "p", outbox.Options{})
		peertest.Run(t, r.peer)
		r.add("a")
		r.sent("a")
		server.Kill()
		r.add("b")
		server.Restart(t)
		r.sent("a", "b")
		redistest.Do(t, redistest.Dial(t, server.URL()), "CONFIG", "SET", "maxmemory", "1")
		r.add("c")
		peertest.Eventually(t, "it's logged", func() bool { return len(r.said.Lines("can't send all rows")) == 1 })
		is.Equal(r.rows(), 1)
		redistest.Do(t, redistest.Dial(t, server.URL()), "CONFIG", "SET", "maxmemory", "0")
		r.sent("a", "b", "c")
		peertest.Eventually(t, "it's logged", func() bool { return len(r.said.Lines("works again")) == 1 })
		is.Equal(len(r.said.Lines("can't send all rows")), 1)
	}, sqlite)
}

// A database that is down is logged once and reported. It harms no other queue, and afterwards rows are sent.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	for _, k := range kinds[:2] {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := own(t, k)
			r := prepare(t, create(t, k, server), redistest.URL(), redistest.Prefix(t), outbox.Options{})
			got := make(chan string, 10)
			r.peer.Queue("others").Handle(peertest.Tell(got), nil)
			peertest.Run(t, r.peer)
			r.add("a")
			r.sent("a")
			server.kill()
			r.Nudge()
			peertest.Eventually(t, "it's logged", func() bool { return len(r.said.Lines("can't send all rows")) == 1 })
			peertest.Enqueue(t, r.peer.Queue("others"), "x")
			is.Equal(peertest.Receive(t, got, 1), []string{"x"})
			is.True(strings.Contains(found(t, r), "the database doesn't answer"))
			is.NoErr(server.launch())
			r.add("b")
			r.sent("a", "b")
			peertest.Eventually(t, "it's logged", func() bool { return len(r.said.Lines("works again")) == 1 })
			is.Equal(len(r.said.Lines("can't send all rows")), 1)
		})
	}
}

// A queue that Redis refuses holds up no other.
func TestBlockedQueue(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		is := is.New(t)
		server := redistest.Start(t)
		conn := redistest.Dial(t, server.URL())
		allow := func(queues string) {
			args := []any{"SETUSER", "limited"}
			for _, word := range redistest.Rule(t, "worker", "p") {
				args = append(args, strings.ReplaceAll(word, "~p:tasks:{*", "~p:tasks:{"+queues))
			}
			redistest.Do(t, conn, "ACL", args...)
		}
		allow("[ot]*") // outbox and tasks
		r := prepare(t, d, strings.Replace(server.URL(), "://", "://limited:SECRET@", 1), "p", outbox.Options{})
		peertest.Run(t, r.peer)
		_, err := r.Add(t.Context(), r.db, "denied", worqr.TaskSpec{Payload: []byte("x")})
		is.NoErr(err)
		r.add("a")
		peertest.Eventually(t, "the other is sent", func() bool { return r.rows() == 1 })
		is.Equal(r.waiting(), []string{"a"})
		peertest.Eventually(t, "it's logged", func() bool { return len(r.said.Lines("permission denied")) == 1 })
		allow("*")
		r.sent("a")
		peertest.Eventually(t, "it works again", func() bool { return len(r.said.Lines("works again")) == 1 })

		// The rows may go in another way, such as by another relay.
		allow("[ot]*")
		_, err = r.Add(t.Context(), r.db, "denied", worqr.TaskSpec{Payload: []byte("x")})
		is.NoErr(err)
		peertest.Eventually(t, "it's logged", func() bool { return len(r.said.Lines("permission denied")) == 2 })
		_, err = r.db.Exec("DELETE FROM worqr_outbox")
		is.NoErr(err)
		peertest.Eventually(t, "it works again", func() bool { return len(r.said.Lines("works again")) == 2 })
	}, sqlite)
}
