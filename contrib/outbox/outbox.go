// Package outbox adds tasks in transactions of your database: a task exists if and only if its transaction committed. Add
// writes a row. A relay, which one of the processes runs, sends rows to Redis and deletes them. See docs/outbox.md.
//
//	ob := outbox.New(db, outbox.Postgres, nil)
//	err := ob.Migrate(ctx)
//	peer, err := worqr.Open(url, &worqr.Options{Sources: []inspect.Source{ob.Source()}})
//	err = ob.Handle(peer)
//
//	err = ob.InTx(ctx, func(tx *sql.Tx) error {
//		_, err := ob.Add(ctx, tx, "orders", worqr.TaskSpec{Payload: payload})
//		return err
//	})
package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/worqr/worqr"
)

// Options configure an Outbox. A zero field means the default.
type Options struct {
	// Queue is the queue on which the relays agree who works; "" is "outbox". Databases that send to the same fleet
	// each need their own.
	Queue      string
	Poll       time.Duration // how often the relay looks without a Nudge, at least a second; 0 is a second
	MaxPayload int           // of the peers' Options; 0 is worqr.DefaultMaxPayload
	Logger     *slog.Logger  // nil is slog.Default
}

// An Outbox is the outbox in one database. Its methods are safe for concurrent use.
type Outbox struct {
	db *sql.DB
	*dialect
	opts Options
	peer atomic.Pointer[worqr.Peer] // nil before Handle
	sent atomic.Int64               // rows

	running  sync.Mutex       // held by the relay's run in this process; protects the next two fields
	refused  map[string]pause // queues that Redis refused
	timedOut time.Time        // when a call last took too long

	mu      sync.Mutex        // protects the fields below
	nudged  bool              // and not yet sent
	nudging bool              // a goroutine sends nudges
	trouble [len(parts)]error // why the relay's last run in this process failed
	noticed time.Time         // when that was

	counting sync.Mutex // protects counted
	counted  census
}

// New returns the outbox in a database, and does no I/O. It panics if db is nil, or the dialect is unknown. Opts may be nil.
func New(db *sql.DB, d Dialect, opts *Options) *Outbox {
	if db == nil || d < 0 || int(d) >= len(dialects) {
		panic("outbox: New needs a database and its dialect")
	}
	ob := &Outbox{db: db, dialect: &dialects[d], refused: map[string]pause{}}
	if opts != nil {
		ob.opts = *opts
	}
	ob.opts.Queue = cmp.Or(ob.opts.Queue, "outbox")
	ob.opts.Poll = cmp.Or(ob.opts.Poll, time.Second)
	ob.opts.Logger = cmp.Or(ob.opts.Logger, slog.Default())
	return ob
}

// relayKey is the key of the recurring task that relays.
const relayKey = "relay"

// Handle lets the peer relay while it runs, and send nudges. Call it once, before Run. It fails if an option isn't valid,
// and panics if the peer handles Options.Queue already.
func (ob *Outbox) Handle(peer *worqr.Peer) error {
	q := peer.Queue(ob.opts.Queue)
	if err := q.Every(relayKey, worqr.Interval(ob.opts.Poll), []byte(relayKey), nil); err != nil {
		return wrap("handle", err)
	}
	q.Handle(ob.work, &worqr.HandleOptions{
		Concurrency: 1, Prefetch: -1, Timeout: 3 * longestRun, MaxCrashes: -1, Priority: 1 << 20,
		Backoff: func(*worqr.Task, error) time.Duration { return ob.opts.Poll },
	})
	ob.peer.Store(peer)
	return nil
}

// An Execer is a transaction: a *sql.Tx, or a *sql.Conn that has begun one. For other drivers, write an adapter: see
// docs/outbox.md.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// format is that of the rows that this version writes. The relay leaves rows with a higher one.
const format = 1

// A row is what the column task has: the fields of a TaskSpec without its payload. Keys and headers may have any bytes.
type row struct {
	Key         []byte           `json:",omitempty"`
	At          time.Time        `json:",omitzero"`
	Unique      bool             `json:",omitempty"`
	Headers     [][2][]byte      `json:",omitempty"`
	Expires     time.Time        `json:",omitzero"`
	Timeout     time.Duration    `json:",omitempty"`
	MaxRetries  int              `json:",omitempty"`
	Nonce       string           // for Once
	KeepResult  time.Duration    `json:",omitempty"`
	KeepPayload bool             `json:",omitempty"`
	KeepCounts  bool             `json:",omitempty"`
	Reschedule  worqr.Reschedule `json:",omitempty"`
}

func encode(t *worqr.TaskSpec, nonce string) ([]byte, error) {
	r := row{
		Key: []byte(t.Key), At: t.At, Unique: t.Unique, Expires: t.Expires, Timeout: t.Timeout, MaxRetries: t.MaxRetries, Nonce: nonce,
		KeepResult: t.KeepResult, KeepPayload: t.KeepPayload, KeepCounts: t.KeepCounts, Reschedule: t.Reschedule,
	}
	for name, value := range t.Headers {
		r.Headers = append(r.Headers, [2][]byte{[]byte(name), []byte(value)})
	}
	return json.Marshal(r)
}

func decode(payload, text []byte) (worqr.TaskSpec, error) {
	var r row
	if err := json.Unmarshal(text, &r); err != nil {
		return worqr.TaskSpec{}, errors.New("the column task has no valid JSON") // the error of json may have a part of it
	}
	t := worqr.TaskSpec{
		Payload: payload, Key: string(r.Key), At: r.At, Unique: r.Unique, Expires: r.Expires, Timeout: r.Timeout, MaxRetries: r.MaxRetries,
		Once: r.Nonce, OnceFor: worqr.MaxOnceFor,
		KeepResult: r.KeepResult, KeepPayload: r.KeepPayload, KeepCounts: r.KeepCounts, Reschedule: r.Reschedule,
	}
	if len(r.Headers) > 0 {
		t.Headers = make(map[string]string, len(r.Headers))
	}
	for _, h := range r.Headers {
		t.Headers[string(h[0])] = string(h[1])
	}
	return t, nil
}

// Add writes a task for the queue in the caller's transaction, and returns its key: a new one if task.Key is "", or ""
// if the task is unique. It fails as Queue.Add does if a field isn't valid, and with ErrInvalid if Once is set, which the
// outbox uses itself. Call Nudge after the commit.
func (ob *Outbox) Add(ctx context.Context, tx Execer, queue string, task worqr.TaskSpec) (key string, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", wrap("add", err)
	}
	if task.Once != "" {
		return "", wrap("add", fmt.Errorf("%w: Once is set; the outbox adds each row once itself", worqr.ErrInvalid))
	}
	err = cmp.Or(worqr.CheckName(queue), task.Validate(ob.opts.MaxPayload))
	switch {
	case err != nil:
	case !utf8.ValidString(queue):
		err = fmt.Errorf("%w: the outbox needs names of queues in UTF-8", worqr.ErrBadName)
	case queue == ob.opts.Queue:
		err = fmt.Errorf("%w: %q is the outbox's own queue", worqr.ErrInvalid, queue)
	}
	if err != nil {
		return "", wrap("add", err)
	}
	if task.Key == "" && !task.Unique {
		task.Key = id.String()
	}
	text, err := encode(&task, id.String())
	if err != nil {
		return "", wrap("add", fmt.Errorf("%w: %w", worqr.ErrInvalid, err))
	}
	payload := task.Payload
	if payload == nil {
		payload = []byte{}
	}
	_, err = tx.ExecContext(ctx, ob.rebind("INSERT INTO worqr_outbox (format, queue, payload, task, bytes) VALUES (?, ?, ?, ?, ?)"),
		format, queue, payload, string(text), len(payload)+len(text))
	if err != nil {
		return "", wrap("add", err)
	}
	return task.Key, nil
}

// InTx begins a transaction, calls fn, commits, and wakes the relay. It rolls back if fn fails or panics. If the commit fails,
// the database may have carried it out.
func (ob *Outbox) InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := ob.db.BeginTx(ctx, nil)
	if err != nil {
		return wrap("begin", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit, it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return wrap("commit", err)
	}
	ob.Nudge()
	return nil
}

// nudgeEvery is the least time between two nudges of a process.
const nudgeEvery = 5 * time.Millisecond

// Nudge wakes the relay. Call it after a commit. It returns at once, and before Handle it does nothing. If Redis can't be
// reached, the next poll finds the rows.
func (ob *Outbox) Nudge() {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.nudged = true
	if !ob.nudging && ob.peer.Load() != nil {
		ob.nudging = true
		go ob.nudge()
	}
}

// nudge sends a nudge, and another one soon if there's a call of Nudge meanwhile.
func (ob *Outbox) nudge() {
	ob.mu.Lock()
	ob.nudging, ob.nudged = ob.nudged, false
	goOn := ob.nudging
	ob.mu.Unlock()
	if goOn {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		// One more run of the recurring task. If the relay works, it works once more.
		_, _ = ob.peer.Load().Queue(ob.opts.Queue).Add(ctx, worqr.TaskSpec{Key: relayKey, Payload: []byte(relayKey)})
		time.AfterFunc(nudgeEvery, ob.nudge)
	}
}

// A Row is a row that was set aside: Redis refused its task for good.
type Row struct {
	ID     int64
	Queue  string
	Reason string
	Age    time.Duration  // by the database's clock
	Task   worqr.TaskSpec // its Once is the row's nonce; zero if it can't be read
}

// Aside returns the rows that were set aside, in order of id. It reads them in pages.
func (ob *Outbox) Aside(ctx context.Context) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		after := int64(-1 << 63)
		for {
			page, err := ob.aside(ctx, after)
			if err != nil {
				yield(Row{}, wrap("read", err))
			}
			if err != nil || len(page) == 0 {
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				after = r.ID
			}
		}
	}
}

func (ob *Outbox) aside(ctx context.Context, after int64) (page []Row, err error) {
	err = ob.query(ctx, func(rows *sql.Rows) error {
		var r Row
		var payload, text []byte
		var age float64
		if err := rows.Scan(&r.ID, &r.Queue, &r.Reason, &age, &payload, &text); err != nil {
			return err
		}
		r.Age = time.Duration(age * float64(time.Second))
		r.Task, _ = decode(payload, text)
		page = append(page, r)
		return nil
	}, "SELECT id, queue, reason, "+ob.age+", payload, task FROM worqr_outbox WHERE reason IS NOT NULL AND id > ? ORDER BY id LIMIT 4", after)
	return page, err
}

// Retry lets the relay send rows again that were set aside, and returns how many there were. If it fails, it may have done so.
func (ob *Outbox) Retry(ctx context.Context, ids ...int64) (int, error) {
	n, err := ob.change(ctx, ids, update+wasAside, nil)
	ob.Nudge()
	return n, wrap("retry", err)
}

// Delete deletes rows that were set aside, and returns how many there were. If it fails, it may have done so.
func (ob *Outbox) Delete(ctx context.Context, ids ...int64) (int, error) {
	n, err := ob.change(ctx, ids, ob.remove+wasAside)
	return n, wrap("delete", err)
}

const wasAside = " AND reason IS NOT NULL"

// change carries out a statement on rows, in a transaction that doesn't make writers wait, and ends by itself, unless the
// application's connections don't: if this process stalled before it sent a COMMIT, others would wait for the rows.
// The statement has the ids as its first argument, for IN, and as its second, after SELECT 0 UNION ALL SELECT.
func (ob *Outbox) change(ctx context.Context, ids []int64, statement string, args ...any) (n int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	conn, err := ob.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil && ob.next != "" {
			discard(conn)
		}
		_ = conn.Close()
	}()
	if err := run(ctx, conn, ob.next); err != nil {
		return 0, err
	}
	list := strings.Trim(fmt.Sprint(ids), "[]")
	statement = fmt.Sprintf(statement, strings.ReplaceAll(list, " ", ","), strings.ReplaceAll(list, " ", " UNION ALL SELECT "))
	done, err := conn.ExecContext(ctx, ob.rebind(statement), args...)
	for tries := 1; isCrossed(err) && tries < 10; tries++ {
		done, err = conn.ExecContext(ctx, ob.rebind(statement), args...)
	}
	if err != nil {
		return 0, err
	}
	count, err := done.RowsAffected()
	if err = cmp.Or(err, run(ctx, conn, ob.end)); err != nil {
		return 0, err
	}
	return int(count), nil
}

// isCrossed reports whether PostgreSQL refused a transaction, since it's serializable and another one has crossed it.
func isCrossed(err error) bool {
	state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	return ok && state.SQLState() == "40001"
}

// query calls read with each row of a result.
func (ob *Outbox) query(ctx context.Context, read func(*sql.Rows) error, query string, args ...any) error {
	from := ob.db.QueryContext
	if ob.dirty {
		tx, err := ob.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		from = tx.QueryContext
	}
	rows, err := from(ctx, ob.rebind(query), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: %s: %w", verb, err)
}
