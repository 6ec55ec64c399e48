package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr"
)

const (
	scanned    = 5000             // rows whose ids are read at once
	batchRows  = 250              // sent in one call
	batchBytes = 1 << 20          // unless it's a single row
	stale      = time.Minute      // after which what was read isn't sent
	forgetting = 10 * time.Minute // after which nonces of deleted rows end; much longer than stale
	longestRun = 10 * time.Second // of the handler, and what a call takes

	// A queue whose node is down leaves time for others. Calls have a second more for each MiB.
	callTimeout  = 5 * time.Second
	retryTimeout = time.Second // of calls in the minute after one that took too long, and of queues that were refused
	pauses       = 30          // times the length of an attempt that was refused, before the next
	longestPause = time.Minute
	mostInARow   = 10    // refusals of queues: then it's Redis itself
	mostLeftOut  = 1_000 // refused queues in a query; the others are tried

	storeTimeout = 10 * time.Second // for storing what has become of a batch
)

// A head is a row without its contents.
type head struct {
	id    int64
	queue string
	bytes int64
}

// An item is a row to send.
type item struct {
	id   int64
	task worqr.TaskSpec
}

// A relay is one run of the relay.
type relay struct {
	*Outbox
	began  time.Time
	calls  int               // of Redis
	inARow int               // refusals
	errs   [len(parts)]error // the first of each
}

// A pause is until when a queue that Redis has refused isn't tried again.
type pause time.Time

// What may fail.
const (
	theDatabase = iota
	theRedis
)

var parts = [...]string{theDatabase: "database", theRedis: "Redis"}

// work relays what is there; what comes later has its own nudge, or waits for a poll. It's the handler of Options.Queue, so
// one process runs it at a time; one that has stalled may run it beside another.
func (ob *Outbox) work(ctx context.Context, task *worqr.Task) error {
	if task.Key != relayKey {
		return worqr.Permanent(errors.New("the queue is the outbox's own, and this task isn't"))
	}
	ob.running.Lock()
	defer ob.running.Unlock()
	r := &relay{Outbox: ob, began: time.Now()}
	for r.pass(ctx) {
	}
	if r.over() {
		ob.Nudge() // lets another process have a turn, or this one end
	}
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), worqr.ErrTimeout) {
		ob.note(theDatabase, r.errs[theDatabase], false)
		ob.note(theRedis, r.errs[theRedis], len(r.refused) > 0)
	}
	return nil // a poll tries again
}

// over reports whether the run has taken long enough. It makes one call at least.
func (r *relay) over() bool {
	return r.calls > 0 && time.Since(r.began) > longestRun || r.inARow >= mostInARow
}

// note logs when something begins to fail, and when it works again. It goes on if that isn't known yet.
func (ob *Outbox) note(of int, trouble error, goesOn bool) {
	ob.mu.Lock()
	before := ob.trouble[of]
	if trouble != nil || !goesOn {
		ob.trouble[of] = trouble
	}
	now := ob.trouble[of]
	ob.noticed = time.Now()
	ob.mu.Unlock()
	switch {
	case now != nil && before == nil:
		ob.opts.Logger.Warn("outbox: the relay can't send all rows; it tries again", "queue", ob.opts.Queue, "noticed", parts[of], "err", now.Error())
	case now == nil && before != nil:
		ob.opts.Logger.Info("outbox: the relay works again", "queue", ob.opts.Queue, "noticed", parts[of])
	}
}

// failed notes an error, unless it's nil.
func (r *relay) failed(of int, err error) { r.errs[of] = cmp.Or(r.errs[of], err) }

// pass sends the rows at the front, of all queues that may be tried, and reports whether there may be more.
func (r *relay) pass(ctx context.Context) (more bool) {
	at := time.Now() // before the snapshot that the query reads
	heads, err := r.scan(ctx)
	if err != nil {
		r.failed(theDatabase, err)
		return false
	}
	queues, of := []string{}, map[string][]head{}
	for _, h := range heads {
		if of[h.queue] == nil {
			queues = append(queues, h.queue)
		}
		of[h.queue] = append(of[h.queue], h)
	}
	for _, queue := range queues {
		for rest := of[queue]; len(rest) > 0; {
			if r.over() || old(at) || ctx.Err() != nil {
				return !r.over() && ctx.Err() == nil
			}
			n, began := fitting(rest), time.Now()
			refused, err := r.batch(ctx, at, queue, rest[:n])
			r.failed(theDatabase, err)
			r.failed(theRedis, refused)
			if err != nil {
				return false
			}
			if refused != nil {
				r.inARow++
				r.refused[queue] = pause(time.Now().Add(min(r.opts.Poll+pauses*time.Since(began), longestPause)))
				break
			}
			r.inARow = 0
			delete(r.refused, queue)
			rest = rest[n:]
		}
	}
	if len(heads) == scanned {
		return true
	}
	maps.DeleteFunc(r.refused, func(queue string, until pause) bool { // it was due, and has no rows any more
		return of[queue] == nil && time.Time(until).Before(at)
	})
	return false
}

// old reports whether what was read at a time must not be sent any more. A machine that was suspended may know it only by
// the wall clock.
func old(at time.Time) bool { return max(time.Since(at), time.Since(at.Round(0))) > stale }

// fitting returns how many rows fit into a batch.
func fitting(rows []head) int {
	bytes := int64(0)
	for n, h := range rows {
		if bytes += h.bytes; n == batchRows || n > 0 && bytes > batchBytes {
			return n
		}
	}
	return len(rows)
}

// scan reads the ids of waiting rows from the front, in one query. Its snapshot is what keeps the order: if it has a row, it
// has all that were committed before that row was written.
func (r *relay) scan(ctx context.Context) (heads []head, err error) {
	query, args := "SELECT id, queue, bytes FROM worqr_outbox WHERE reason IS NULL AND format <= ?", []any{format}
	for queue, until := range r.refused {
		if time.Until(time.Time(until)) > 0 && len(args) <= mostLeftOut {
			args = append(args, queue)
		}
	}
	if len(args) > 1 {
		query += " AND queue NOT IN " + among(len(args)-1)
	}
	err = r.query(ctx, func(rows *sql.Rows) error {
		var h head
		err := rows.Scan(&h.id, &h.queue, &h.bytes)
		heads = append(heads, h)
		return err
	}, query+" ORDER BY id LIMIT ?", append(args, scanned)...)
	return heads, err
}

// A verdict is what became of the rows of a batch.
type verdict struct {
	done   []int64
	nonces []string
	aside  map[string][]int64 // by the reason
}

// batch sends rows of a queue, and deletes them, or sets them aside. It returns why Redis refuses the queue now, or the
// database's error.
func (r *relay) batch(ctx context.Context, at time.Time, queue string, rows []head) (refused, err error) {
	ids := make([]any, batchRows) // always as many, so that the database needs to prepare one statement only
	for i := range ids {
		ids[i] = rows[min(i, len(rows)-1)].id
	}
	v := &verdict{aside: map[string][]int64{}}
	var items []item
	err = r.query(ctx, func(rows *sql.Rows) (err error) {
		var it item
		var payload, text []byte
		if err := rows.Scan(&it.id, &payload, &text); err != nil {
			return err
		}
		if it.task, err = decode(payload, text); err != nil {
			v.aside[err.Error()] = append(v.aside[err.Error()], it.id)
		} else {
			items = append(items, it)
		}
		return nil
	}, "SELECT id, payload, task FROM worqr_outbox WHERE reason IS NULL AND id IN "+among(batchRows)+" ORDER BY id", ids...)
	if err != nil {
		return nil, err
	}
	q := r.peer.Load().Queue(queue)
	for rest := items; len(rest) > 0 && err == nil; {
		n := distinct(rest)
		err = r.send(ctx, at, q, rest[:n], v)
		rest = rest[n:]
	}
	if err != errStop {
		refused = err
	}
	// What has become of the rows is stored even if ctx has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	for reason, ids := range v.aside {
		n, err := r.change(ctx, ids, update, reason)
		if err != nil {
			return refused, err
		}
		r.opts.Logger.Warn("outbox: Redis refuses tasks for good, and their rows were set aside; list them with Aside", "queue", queue, "rows", n, "reason", reason)
	}
	n, err := r.change(ctx, v.done, r.remove)
	if err != nil {
		return refused, err
	}
	r.sent.Add(int64(n))
	_ = q.Forget(ctx, forgetting, v.nonces...) // otherwise they end after 30 days
	return refused, nil
}

// distinct returns how many items one call of Add takes: their keys differ.
func distinct(items []item) int {
	seen := map[string]bool{}
	for n, it := range items {
		id := "key " + it.task.Key
		if it.task.Unique {
			id = string(it.task.Payload)
		}
		if seen[id] {
			return n
		}
		seen[id] = true
	}
	return len(items)
}

// errStop ends a batch: what was read is too old, or the run has taken long enough. Another run goes on.
var errStop = errors.New("the run ends")

// send adds the tasks of items. It finds those that Redis refuses for good by halves, and returns why Redis refuses all
// others now.
func (r *relay) send(ctx context.Context, at time.Time, q *worqr.Queue, items []item, v *verdict) error {
	if old(at) || r.over() || ctx.Err() != nil {
		return errStop
	}
	bytes, tasks := 0, make([]worqr.TaskSpec, len(items))
	for i, it := range items {
		tasks[i] = it.task
		bytes += len(it.task.Payload)
	}
	limit := callTimeout
	if _, again := r.refused[q.Name()]; again || time.Since(r.timedOut) < time.Minute {
		limit = retryTimeout
	}
	within, cancel := context.WithTimeout(ctx, min(limit+time.Duration(bytes>>20)*time.Second, time.Until(at.Add(stale))))
	defer cancel()
	r.calls++
	_, err := q.Add(within, tasks...)
	_, skipped := errors.AsType[*worqr.OnceError](err)
	duplicate := errors.Is(err, worqr.ErrDuplicate)
	switch {
	case err == nil, skipped, duplicate && len(items) == 1:
		for _, it := range items {
			v.done = append(v.done, it.id)
			if !duplicate {
				v.nonces = append(v.nonces, it.task.Once)
			}
		}
		return nil
	case !duplicate && !permanent(err, tasks):
		if ctx.Err() != nil {
			return errStop
		}
		if within.Err() != nil {
			r.timedOut = time.Now()
		}
		return err
	case len(items) == 1:
		v.aside[err.Error()] = append(v.aside[err.Error()], items[0].id)
		return nil
	}
	half := len(items) / 2
	if err := r.send(ctx, at, q, items[:half], v); err != nil {
		return err
	}
	return r.send(ctx, at, q, items[half:], v)
}

// permanent reports whether some of the tasks are refused however often they're added. Other errors are about the queue,
// or Redis.
func permanent(err error, tasks []worqr.TaskSpec) bool {
	return errors.Is(err, worqr.ErrTooLarge) || errors.Is(err, worqr.ErrBadName) ||
		slices.ContainsFunc(tasks, func(t worqr.TaskSpec) bool { return t.Validate(worqr.MaxPayloadSize) != nil })
}
