package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/spec"
)

// A plan is how the handlers of a task behave. It follows from the payload.
type plan struct {
	takes   time.Duration
	fails   int  // how many times it fails before it succeeds
	forever bool // fails, until there are no more faults
	panics  bool
	slow    bool // takes longer than it may, until there are no more faults
	deaf    bool // ignores the end of its context for a while
	snoozes int  // how many times it snoozes the task, in any process
}

func (r *run) plan(payload string) (p plan) {
	d := r.opts.dice("task " + payload)
	if rest, ok := strings.CutPrefix(payload, "takes "); ok {
		ms, _, _ := strings.Cut(rest, " ")
		p.takes = time.Duration(atoi(ms)) * time.Millisecond
		return p
	}
	p.takes = time.Duration(d.Float64() * d.Float64() * float64(r.opts.Longest))
	switch d.IntN(20) {
	case 0, 1:
		p.fails = 1 + d.IntN(3)
	case 2:
		p.fails, p.panics = 1, true
	case 3:
		p.forever = d.IntN(3) == 0
	case 4:
		p.slow = r.opts.Timeout > 0 && d.IntN(5) == 0
	case 5:
		p.deaf = d.IntN(5) == 0
	case 6:
		p.snoozes = 1 + d.IntN(2)
	}
	return p
}

// handling returns the options of the handlers.
func (r *run) handling(p *process) *worqr.HandleOptions {
	o := r.opts
	h := &worqr.HandleOptions{
		Concurrency: o.Concurrency, Prefetch: o.Prefetch, MaxCrashes: o.MaxCrashes, Exclusive: o.Exclusive, Timeout: o.Timeout, Grace: 2 * time.Second,
		MaxRetries: 3, Backoff: func(t *worqr.Task, _ error) time.Duration {
			return time.Duration((t.Retries+1)*(t.Retries+1)) * 300 * time.Millisecond
		}, KeepFailed: 100_000,
	}
	if o.OnFailed {
		h.OnFailed = r.handler(p)
		h.OnFailedOptions = &worqr.HandleOptions{Exclusive: o.Exclusive, Grace: 2 * time.Second, MaxCrashes: -1, Backoff: func(*worqr.Task, error) time.Duration { return 2 * time.Second }}
	}
	return h
}

var errPlanned = errors.New("as planned")

// handler runs tasks as planned.
func (r *run) handler(p *process) worqr.Handler {
	return func(ctx context.Context, t *worqr.Task) error {
		p.breathe()
		w, payload := r.world, string(t.Payload)
		plan := r.plan(payload)
		w.mu.Lock()
		if p.dead {
			w.mu.Unlock()
			return errDead
		}
		s := w.judge.begins(ctx, p, t)
		if seen := r.seen[payload]; seen != nil {
			seen(p, ctx)
		}
		healed := r.healed
		snoozes := r.snoozed[payload] < plan.snoozes && t.Failure == nil
		w.mu.Unlock()

		end := func(ready bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			s.returned, s.ready = true, ready
		}
		if plan.slow && !healed {
			plan.takes = r.opts.Timeout + time.Second
		}
		done := p.rest(ctx, plan.takes)
		if !done && plan.deaf && p.ctx.Err() == nil {
			done = p.rest(p.ctx, 3*time.Second)
		}
		fails := plan.forever && !healed || t.Retries < plan.fails && t.Failure == nil
		switch {
		case p.isDead():
			return errDead
		case !done:
			end(false)
			return context.Cause(ctx)
		case snoozes:
			end(false)
			r.locked(func() { r.snoozed[payload]++ })
			return worqr.Snooze(plan.takes)
		case fails && plan.panics:
			end(false)
			panic(errPlanned)
		case fails && plan.forever:
			end(false)
			return worqr.Permanent(errPlanned)
		case fails:
			end(false)
			return errPlanned
		}
		t.Result = resultOf(payload)
		end(true)
		return nil
	}
}

func (p *process) isDead() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.dead
}

// produce acts as a producer until the process stops, or there are no more faults.
func (r *run) produce(p *process) {
	d := r.opts.dice("producer " + p.name)
	for n := 0; ; n++ {
		if !p.rest(p.ctx, time.Duration(d.ExpFloat64()*float64(r.opts.Pace))*time.Duration(r.opts.Fleet)) || r.isOver() {
			return
		}
		r.act(p, d, n)
	}
}

// act is one action of a producer.
func (r *run) act(p *process, d *rand.Rand, n int) {
	ctx, cancel := context.WithTimeout(p.ctx, time.Duration(d.ExpFloat64()*float64(3*time.Second)))
	defer cancel()
	q := p.peer.Queue(r.opts.Queues[d.IntN(len(r.opts.Queues))])
	name := fmt.Sprintf("%s/%s/%d", q.Name(), p.name, n)
	if p.guest != nil && d.IntN(13) == 0 {
		r.visit(ctx, p.guest, q.Name(), d)
		return
	}
	key := "key" + strconv.Itoa(d.IntN(6))
	if d.IntN(13) < 3 {
		r.actAdded(ctx, p, q, d, name)
		return
	}
	switch d.IntN(40) {
	case 0, 1, 2:
		_, _ = q.Add(ctx, worqr.TaskSpec{Payload: []byte(q.Name() + " unique " + strconv.Itoa(d.IntN(5))), Unique: true}) // may fail
	case 3, 4:
		_ = enqueueOnce(ctx, q, name, []byte(name)) // may fail
	case 5, 6, 7, 8, 9, 10, 11, 12:
		r.putKey(ctx, q, d, key, name)
	case 13, 14:
		if payload := r.recall(d, q.Name()); payload != "" {
			r.cancel(ctx, q, payload)
		}
	case 15:
		if report, err := q.CancelKey(ctx, key); err == nil {
			_ = report.Wait(ctx) // as long as ctx allows
		}
	case 16:
		_, _ = q.RemoveKey(ctx, key)
	case 17:
		if d.IntN(5) == 0 {
			p.pauseQueue(ctx, q, d)
		}
	case 18:
		_, _ = q.RequeueAllFailed(ctx)
	case 19:
		_, _ = q.Stats(ctx)
	case 20:
		if d.IntN(10) == 0 {
			if victim := r.anyWorker(d); victim != "" {
				_, _ = p.peer.FailWorker(ctx, victim)
			}
		}
	case 21:
		r.enqueueOnceOrMore(ctx, q, d, name)
	case 22:
		if d.IntN(10) == 0 {
			_ = q.Delete(ctx)
		}
	default:
		r.enqueueFew(ctx, q, d, name)
	}
}

// pauseQueue pauses a queue for a while.
func (p *process) pauseQueue(ctx context.Context, q *worqr.Queue, d *rand.Rand) {
	if q.Pause(ctx) != nil {
		return
	}
	p.rest(p.ctx, time.Duration(d.Float64()*float64(2*time.Second)))
	resume, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	_ = q.Resume(resume) // otherwise it stays paused until there are no more faults
}

func (r *run) putKey(ctx context.Context, q *worqr.Queue, d *rand.Rand, key, name string) {
	at := time.Now().Add(time.Duration((d.Float64() - 0.2) * float64(20*time.Second)))
	if d.IntN(2) == 0 {
		at = time.Time{}
	}
	payload := name
	if d.IntN(2) == 0 {
		payload = described(name, d)
	}
	put := task(payload, d)
	put.Key, put.At = key, at
	put.Reschedule = pick(d, worqr.RescheduleAlways, worqr.RescheduleAlways, worqr.RescheduleNever, worqr.RescheduleIfLater, worqr.RescheduleIfEarlier)
	put.KeepPayload, put.KeepCounts = d.IntN(4) == 0, d.IntN(4) == 0
	_, err := q.Add(ctx, put)
	if err == nil {
		r.remember(payload)
	}
}

func (r *run) enqueueFew(ctx context.Context, q *worqr.Queue, d *rand.Rand, name string) {
	var batch [][]byte
	for i := range 1 + d.IntN(4)*d.IntN(2) {
		batch = append(batch, fmt.Appendf(nil, "%s.%d", name, i))
	}
	r.told(batch, q.Enqueue(ctx, batch...))
}

// told records the answer to the producer of some payloads, which may be canceled from then on.
func (r *run) told(payloads [][]byte, err error) {
	for _, p := range payloads {
		r.locked(func() { r.world.judge.told(string(p), err) })
		r.remember(string(p))
	}
}

// visit makes a worker join a queue and leave it, again and again, so that late copies of its joins and leaves
// arrive in later memberships of the same id.
func (r *run) visit(ctx context.Context, guest *worqr.Peer, queue string, d *rand.Rand) {
	if guest.StartWorker(ctx) != nil {
		return
	}
	q := guest.Queue(queue)
	for range 1 + d.IntN(4) {
		if q.StartWork(ctx) != nil {
			return // it tries to join on its own
		}
		time.Sleep(time.Duration(d.ExpFloat64() * float64(200*time.Millisecond)))
		r.locked(func() { r.world.judge.leaving[queue+" "+guest.WorkerID()] = true })
		if q.StopWork(ctx) != nil {
			return
		}
	}
}

// enqueueOnceOrMore enqueues a few payloads with a nonce, and repeats the call if its reply is lost.
func (r *run) enqueueOnceOrMore(ctx context.Context, q *worqr.Queue, d *rand.Rand, name string) {
	var all [][]byte
	for i := range 1 + d.IntN(4) {
		all = append(all, fmt.Appendf(nil, "%s.%d", name, i))
	}
	r.told(all, enqueueOnce(ctx, q, name, all...))
}

// enqueueOnce enqueues payloads with a nonce, until the outcome is known. If it never is, an error of the last call
// says nothing about the earlier ones.
func enqueueOnce(ctx context.Context, q *worqr.Queue, nonce string, batch ...[]byte) error {
	var unknown error
	for range 5 {
		_, err := q.EnqueueOnce(ctx, nonce, batch...)
		if err == nil {
			return nil
		}
		if !errors.Is(err, worqr.ErrUnknownOutcome) {
			return cmp.Or(unknown, err)
		}
		if unknown = err; ctx.Err() != nil {
			break
		}
	}
	return unknown
}

// remember stores payloads that may be canceled.
func (r *run) remember(payload string) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	if r.recent = append(r.recent, payload); len(r.recent) > 60 {
		r.recent = r.recent[30:]
	}
}

func (r *run) recall(d *rand.Rand, queue string) string {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	if len(r.recent) > 0 {
		if p := r.recent[d.IntN(len(r.recent))]; strings.HasPrefix(p, queue+"/") {
			return p
		}
	}
	return ""
}

// cancel cancels a payload, and checks that no copy of it runs once the cancel
// has ended.
func (r *run) cancel(ctx context.Context, q *worqr.Queue, payload string) {
	report, err := q.Cancel(ctx, []byte(payload))
	if err != nil {
		return
	}
	w := r.world
	w.mu.Lock()
	if w.Rollbacks+w.Wipes == 0 {
		w.judge.covered(q.Name(), payload)
	}
	w.mu.Unlock()
	if report.Wait(ctx) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Rollbacks+w.Wipes > 0 || w.ByHand > 0 {
		return // a worker that isn't known to hold anything doesn't need to report that it holds nothing
	}
	covers := w.judge.cancels[q.Name()+" "+spec.Digest(payload)]
	for id, s := range w.judge.started {
		if s.digest == spec.Digest(payload) && !s.failed && s.token <= covers && s.begun && !s.returned && !s.at.excused() && !r.plan(payload).deaf {
			w.judge.violation("the cancel of %s had ended, but attempt %s runs on %s", payload, id, s.at.name)
		}
	}
}

// anyWorker returns the id of a random process's worker.
func (r *run) anyWorker(d *rand.Rand) string {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	r.world.ByHand++
	p := r.world.all[d.IntN(len(r.world.all))]
	return p.peer.WorkerID()
}
