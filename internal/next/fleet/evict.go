package fleet

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/next/store"
	"github.com/worqr/worqr/worqrtrace"
)

const atOnce = 8 // queues in one exchange: heartbeats wait for it, and each call may take a few milliseconds

// askLocked makes the node evict the dead workers of a queue, and return tasks.
func (n *node) askLocked(m *member) {
	if !slices.Contains(n.asked, m) {
		n.asked = append(n.asked, m)
	}
	if !n.evicting {
		n.evicting = true
		n.loops.Go(n.evict)
	}
}

// evict evicts the dead workers of the queues for which a heartbeat has asked for it, until no more is to be done.
// When there will be something to do again, the queue gets a heartbeat, which asks again unless another worker has
// been faster.
func (n *node) evict() {
	for {
		some, judge := n.asks()
		if len(some) == 0 {
			return
		}
		queues := make([]*store.Shared, len(some))
		for i, m := range some {
			queues[i] = m.queue.Shared
		}
		ctx, cancel := context.WithTimeout(n.ctx, n.patience())
		looks, errs := store.LookAll(ctx, n.fleet.Lines.Control, queues, judge, n.fleet.lease.Beat)
		cancel()
		if n.ctx.Err() == nil {
			n.note(&n.evicts, "can't evict workers or return their tasks; retrying", cmp.Or(errs...))
		}
		n.looked(some, looks, errs)
	}
}

// asks takes queues to look at, and Redis's time until which workers may be evicted from each. If there are
// none, the loop ends.
func (n *node) asks() (some []*member, judge []int64) {
	now, made := time.Now(), n.made()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		n.asked = nil
	}
	some = n.asked[:min(atOnce, len(n.asked))]
	n.asked = slices.Clone(n.asked[len(some):])
	n.evicting = len(some) > 0
	for _, m := range some {
		judge = append(judge, n.judgesLocked(m, now, made))
	}
	return some, judge
}

// looked handles the results.
func (n *node) looked(some []*member, looks []store.Look, errs []error) {
	f, dead := n.fleet, evictions{}
	rarely := f.lease.Beat / 16
	n.mu.Lock()
	for i, m := range some {
		for _, d := range looks[i].Evicted {
			dead.add(m.queue.ID, d)
		}
		switch wait := looks[i].Wait; {
		case errs[i] != nil: // a heartbeat asks again
		case wait == 0:
			n.askLocked(m)
		case wait > 0:
			m.due = time.Now().Add(max(wait+time.Millisecond, rarely))
		}
	}
	for id, o := range dead {
		if o.again = !n.dead[id].IsZero(); !o.again {
			n.dead[id] = time.Now()
			f.counts.Swept.Add(1)
		}
	}
	n.mu.Unlock()
	n.soon()
	f.notes.Add(func() {
		for i, m := range some {
			f.returned(m.queue.ID, looks[i].Returned)
		}
		if len(dead) > 0 { // at once, since whatever killed them may kill this peer next
			f.report(dead, f.registered(context.Background(), slices.Sorted(maps.Keys(dead))))
		}
	})
}

// Fail evicts a worker, alive or not, and returns the number of returned tasks.
func (f *Fleet) Fail(ctx context.Context, worker string) (returned int, err error) {
	dead := evictions{}
	errs := f.eachQueue(ctx, func(q store.Keys, id string) error {
		known, n, err := store.FailWorker(ctx, f.Lines.Calls, q, worker, f.lease.Beat)
		if known {
			dead.add(id, store.Dead{Worker: worker, Tasks: n})
		}
		f.returned(id, n)
		returned += n
		return err
	})
	if o := dead[worker]; o != nil {
		f.evictedOther(store.Worker{ID: worker}, o)
	}
	return returned, joined(append(errs, f.partly(f.dismiss(ctx, []string{worker}))))
}

// Sweep checks every queue once, evicts workers that were already silent for too long at an earlier
// check, and returns their ids.
func (f *Fleet) Sweep(ctx context.Context) (failed []string, err error) {
	dead := evictions{}
	errs := f.eachQueue(ctx, func(q store.Keys, id string) error {
		now, err := store.NowAt(ctx, f.Lines.Calls, q)
		if err != nil {
			return err
		}
		for {
			look, err := store.Evict(ctx, f.Lines.Calls, q, "", now+f.lease.Beat.Milliseconds(), f.lease.Beat)
			if err != nil {
				return err
			}
			f.returned(id, look.Returned)
			for _, d := range look.Evicted {
				dead.add(id, d)
			}
			if look.Wait != 0 {
				return nil
			}
		}
	})
	failed = slices.Sorted(maps.Keys(dead)) // UUIDv7s sort by the time they were made
	if len(dead) > 0 {
		f.counts.Swept.Add(int64(len(dead)))
		last := context.WithoutCancel(ctx)
		f.report(dead, f.registered(last, failed))
		errs = append(errs, f.partly(f.dismiss(last, failed)))
	}
	return failed, joined(append(errs, f.partly(store.Prune(ctx, f.Lines.Calls, f.Space))))
}

func halves(s store.Space, name string) iter.Seq2[store.Keys, string] {
	return func(yield func(store.Keys, string) bool) {
		q := s.Queue(name)
		_ = yield(q, name) && yield(q.Failed(), name+failedHalf)
	}
}

// An eviction holds what a peer knows about a worker that it has evicted.
type eviction struct {
	at     time.Time // when it was evicted from the first queue
	queues []string
	tasks  int
	again  bool // it was reported before, on other queues
}

type evictions map[string]*eviction // by worker

// add records that a worker was evicted from a queue.
func (e evictions) add(queue string, d store.Dead) {
	one := e[d.Worker]
	if one == nil {
		one = &eviction{at: time.Now()}
		e[d.Worker] = one
	}
	one.queues = append(one.queues, queue)
	one.tasks += d.Tasks
}

// report logs one line for each evicted worker, within a limit. If a worker is no longer registered, the line has
// only its id.
func (f *Fleet) report(dead evictions, were map[string]store.Worker) {
	for _, id := range slices.Sorted(maps.Keys(dead)) {
		o, attrs := dead[id], []any{"worker", id}
		w, there := were[id]
		if w.ID = id; !o.again {
			f.evictedOther(w, o)
		}
		if there {
			attrs = append(attrs, "name", w.Name, "host", w.Host, "pid", w.PID)
		}
		queues := slices.Compact(slices.Sorted(slices.Values(o.queues)))
		if f.lines.Allow(queues[0]) {
			f.Log.Warn("worqr: evicted a worker whose lease expired", append(attrs, "queues", queues, "tasks", o.tasks, "evicted_at", o.at)...)
		}
	}
}

// evictedOther reports that this peer has evicted another worker.
func (f *Fleet) evictedOther(w store.Worker, o *eviction) {
	f.Trace.WorkerFailed(worqrtrace.Worker{
		At: time.Now(), WorkerID: w.ID, Name: w.Name, Host: w.Host, PID: w.PID, Queues: publics(o.queues), Tasks: o.tasks,
	})
}
