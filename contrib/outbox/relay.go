package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/worqr/worqr"
)

const (
	scanned     = 5000             // rows whose ids are read at once
	batchRows   = 250              // sent in one call
	batchBytes  = 1 << 20          // unless it's a single row
	stale       = time.Minute      // after which what was read isn't sent
	forgetting  = 10 * time.Minute // after which nonces of deleted rows end; much longer than stale
	callTimeout = 5 * time.Second  // and a second for each MiB: a queue whose node is down leaves time for others
	longestRun  = 10 * time.Second // of the handler, and what a batch takes
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
	began   time.Time
	refused []string // queues that Redis refused, in the last run or in this one
	trouble error    // the first
}

// work relays what is there; what comes later has its own nudge, or waits for a poll. It's the handler of Options.Queue, so
// one process runs it at a time; one that has stalled may run it beside another.
func (ob *Outbox) work(ctx context.Context, task *worqr.Task) error {
	if task.Key != relayKey {
		return worqr.Permanent(errors.New("the queue is the outbox's own, and this task isn't"))
	}
	ob.mu.Lock()
	before := ob.refused
	ob.mu.Unlock()
	r := &relay{Outbox: ob, began: time.Now(), refused: slices.Clone(before)}
	for r.pass(ctx, "") { // without the queues that were refused
	}
	for _, queue := range before {
		if r.over() {
			break
		}
		r.refused = slices.DeleteFunc(slices.Clone(r.refused), func(q string) bool { return q == queue })
		for r.pass(ctx, queue) {
		}
	}
	if r.over() {
		ob.Nudge() // lets another process have a turn, or this one end
	}
	ob.mu.Lock()
	ob.refused = r.refused
	ob.mu.Unlock()
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), worqr.ErrTimeout) {
		ob.note(r.trouble)
	}
	return nil // a poll tries again
}

// over reports whether the run has taken long enough.
func (r *relay) over() bool { return time.Since(r.began) > longestRun }

// note logs when the relay begins to fail, and when it works again.
func (ob *Outbox) note(trouble error) {
	ob.mu.Lock()
	before := ob.trouble
	ob.trouble, ob.noticed = trouble, time.Now()
	ob.mu.Unlock()
	switch {
	case trouble != nil && before == nil:
		ob.opts.Logger.Warn("outbox: the relay can't send all rows; it tries again", "queue", ob.opts.Queue, "err", trouble.Error())
	case trouble == nil && before != nil:
		ob.opts.Logger.Info("outbox: the relay works again", "queue", ob.opts.Queue)
	}
}

// pass sends the rows at the front: those of one queue, or if that is "", of all that Redis hasn't refused. It reports
// whether there may be more.
func (r *relay) pass(ctx context.Context, only string) (more bool) {
	at := time.Now() // before the snapshot that the query reads
	heads, err := r.scan(ctx, only)
	if err != nil {
		r.trouble = cmp.Or(r.trouble, err)
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
			if r.over() || old(at) {
				return !r.over()
			}
			n := fitting(rest)
			no, err := r.batch(ctx, at, queue, rest[:n])
			r.trouble = cmp.Or(r.trouble, err, no)
			if err != nil {
				return false
			}
			if no != nil {
				r.refused = append(r.refused, queue)
				break
			}
			rest = rest[n:]
		}
	}
	return len(heads) == scanned && !(only != "" && slices.Contains(r.refused, only))
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
func (r *relay) scan(ctx context.Context, only string) (heads []head, err error) {
	query, args := "SELECT id, queue, bytes FROM worqr_outbox WHERE reason IS NULL AND format <= ?", []any{format}
	switch {
	case only != "":
		query, args = query+" AND queue = ?", append(args, only)
	case len(r.refused) > 0:
		query += " AND queue NOT IN " + among(len(r.refused))
		for _, queue := range r.refused {
			args = append(args, queue)
		}
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
	aside  map[int64]string // reasons
}

// batch sends rows of a queue, and deletes them, or sets them aside. It returns why Redis refuses the queue now, or the
// database's error.
func (r *relay) batch(ctx context.Context, at time.Time, queue string, rows []head) (refused, err error) {
	ids := make([]any, batchRows) // always as many, so that the database needs to prepare one statement only
	for i := range ids {
		ids[i] = rows[min(i, len(rows)-1)].id
	}
	v := &verdict{aside: map[int64]string{}}
	var items []item
	err = r.query(ctx, func(rows *sql.Rows) (err error) {
		var it item
		var payload, text []byte
		if err := rows.Scan(&it.id, &payload, &text); err != nil {
			return err
		}
		if it.task, err = decode(payload, text); err != nil {
			v.aside[it.id] = err.Error()
		} else {
			items = append(items, it)
		}
		return nil
	}, "SELECT id, payload, task FROM worqr_outbox WHERE reason IS NULL AND id IN "+among(batchRows)+" ORDER BY id", ids...)
	if err != nil {
		return nil, err
	}
	q := r.peer.Load().Queue(queue)
	for rest := items; len(rest) > 0 && refused == nil; {
		n := distinct(rest)
		refused = send(ctx, at, q, rest[:n], v)
		rest = rest[n:]
	}
	for id, reason := range v.aside {
		if _, err := r.change(ctx, []int64{id}, r.update, reason); err != nil {
			return refused, err
		}
	}
	if len(v.aside) > 0 {
		r.opts.Logger.Warn("outbox: Redis refuses tasks for good, and their rows were set aside; list them with Aside", "queue", queue, "rows", len(v.aside))
	}
	if _, err := r.change(ctx, v.done, r.remove); err != nil {
		return refused, err
	}
	r.sent.Add(int64(len(v.done)))
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

var errOld = errors.New("the rows were read too long ago; they're read again")

// send adds the tasks of items. It finds those that Redis refuses for good by halves, and returns why Redis refuses all
// others now.
func send(ctx context.Context, at time.Time, q *worqr.Queue, items []item, v *verdict) error {
	if old(at) {
		return errOld
	}
	bytes, tasks := 0, make([]worqr.TaskSpec, len(items))
	for i, it := range items {
		tasks[i] = it.task
		bytes += len(it.task.Payload)
	}
	within, cancel := context.WithTimeout(ctx, min(callTimeout+time.Duration(bytes>>20)*time.Second, time.Until(at.Add(stale))))
	defer cancel()
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
		return err
	case len(items) == 1:
		v.aside[items[0].id] = err.Error()
		return nil
	}
	half := len(items) / 2
	if err := send(ctx, at, q, items[:half], v); err != nil {
		return err
	}
	return send(ctx, at, q, items[half:], v)
}

// permanent reports whether some of the tasks are refused however often they're added. Other errors are about the queue,
// or Redis.
func permanent(err error, tasks []worqr.TaskSpec) bool {
	return errors.Is(err, worqr.ErrTooLarge) || errors.Is(err, worqr.ErrBadName) ||
		slices.ContainsFunc(tasks, func(t worqr.TaskSpec) bool { return t.Validate(worqr.MaxPayloadSize) != nil })
}
