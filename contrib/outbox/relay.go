package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
)

const (
	scanned     = 5000             // rows whose ids are read at once
	batchRows   = 250              // sent in one call
	batchBytes  = 1 << 20          // unless it's a single row
	stale       = time.Minute      // after which what was read isn't sent
	forgetting  = 10 * time.Minute // after which nonces of deleted rows end; much longer than stale
	callTimeout = 5 * time.Second  // so that a queue whose node is down leaves time for others
	longestRun  = 10 * time.Second // of the handler, unless a batch takes longer
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

// work relays what is there; what comes later has its own nudge, or waits for a poll. It's the handler of Options.Queue, so at most one process runs it; one that has stalled may
// run it beside another.
func (ob *Outbox) work(ctx context.Context, _ *worqr.Task) error {
	var trouble error
	blocked := []string{} // queues that Redis refuses now
	for began := time.Now(); ; {
		if time.Since(began) > longestRun {
			ob.Nudge() // lets another process have a turn, or this one end
			break
		}
		more, refused, err := ob.pass(ctx, &blocked)
		trouble = cmp.Or(trouble, err, refused)
		if err != nil || !more {
			break
		}
	}
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), worqr.ErrTimeout) {
		ob.note(trouble)
	}
	return nil // a poll tries again
}

// note logs when the relay begins to fail, and when it works again.
func (ob *Outbox) note(trouble error) {
	ob.mu.Lock()
	before := ob.trouble
	ob.trouble = trouble
	ob.mu.Unlock()
	switch {
	case trouble != nil && before == nil:
		ob.opts.Logger.Warn("outbox: the relay can't send all rows; it tries again", "queue", ob.opts.Queue, "err", trouble.Error())
	case trouble == nil && before != nil:
		ob.opts.Logger.Info("outbox: the relay works again", "queue", ob.opts.Queue)
	}
}

// pass sends the rows at the front, and reports whether there may be more. It adds the queues that Redis refuses, for the
// reason that it returns, to those that are blocked. Of the database, it returns the error.
func (ob *Outbox) pass(ctx context.Context, blocked *[]string) (more bool, refused, err error) {
	at := time.Now() // before the snapshot that the query reads
	heads, err := ob.scan(ctx, *blocked)
	if err != nil {
		return false, nil, err
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
			if old(at) {
				return true, refused, nil
			}
			n := fitting(rest)
			no, err := ob.batch(ctx, at, queue, rest[:n])
			if err != nil {
				return true, refused, err
			}
			if no != nil {
				refused = cmp.Or(refused, no)
				*blocked = append(*blocked, queue)
				break
			}
			rest = rest[n:]
		}
	}
	return len(heads) == scanned, refused, nil
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

// scan reads the ids of waiting rows from the front, in one query. Its snapshot is what keeps the order: if it has a row, it has all
// that were committed before that row was written.
func (ob *Outbox) scan(ctx context.Context, blocked []string) (heads []head, err error) {
	query, args := "SELECT id, queue, "+ob.size+" FROM worqr_outbox WHERE reason IS NULL AND format <= ?", []any{format}
	if len(blocked) > 0 {
		query += " AND queue NOT IN " + among(len(blocked))
		for _, queue := range blocked {
			args = append(args, queue)
		}
	}
	err = ob.query(ctx, func(rows *sql.Rows) error {
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
func (ob *Outbox) batch(ctx context.Context, at time.Time, queue string, rows []head) (refused, err error) {
	var ids []int64
	for _, h := range rows {
		ids = append(ids, h.id)
	}
	v := &verdict{aside: map[int64]string{}}
	var items []item
	err = ob.query(ctx, func(rows *sql.Rows) (err error) {
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
	}, "SELECT id, payload, task FROM worqr_outbox WHERE reason IS NULL AND id IN "+list(ids)+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	q := ob.peer.Load().Queue(queue)
	for rest := items; len(rest) > 0 && refused == nil; {
		n := distinct(rest)
		refused = send(ctx, at, q, rest[:n], v)
		rest = rest[n:]
	}
	for id, reason := range v.aside {
		if _, err := ob.change(ctx, "UPDATE worqr_outbox SET reason = ? WHERE id IN ", []int64{id}, reason); err != nil {
			return refused, err
		}
	}
	if _, err := ob.change(ctx, "DELETE FROM worqr_outbox WHERE id IN ", v.done); err != nil {
		return refused, err
	}
	ob.sent.Add(int64(len(v.done)))
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

// send adds the tasks of items. It finds those that Redis refuses for good by halves, and returns why Redis refuses all
// others now.
func send(ctx context.Context, at time.Time, q *worqr.Queue, items []item, v *verdict) error {
	within, cancel := context.WithTimeout(ctx, min(callTimeout, time.Until(at.Add(stale))))
	defer cancel()
	tasks := make([]worqr.TaskSpec, len(items))
	for i, it := range items {
		tasks[i] = it.task
	}
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
	case !duplicate && !permanent(err):
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

// permanent reports whether Redis or the library refuses a task, however often it's added.
func permanent(err error) bool {
	return slices.ContainsFunc([]error{worqr.ErrInvalid, worqr.ErrTooLarge, worqr.ErrBadName}, func(e error) bool { return errors.Is(err, e) }) ||
		strings.Contains(err.Error(), "WRONGTYPE")
}
