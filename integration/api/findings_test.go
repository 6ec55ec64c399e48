package api

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// TestNumbers compares what Check and Stats say about a queue with a plain model of it, after random operations: how
// many tasks wait, run, wait for their retry or have failed, when they failed, and since when the first one is due.
func TestNumbers(t *testing.T) {
	eachSeed(t, 4, func(t *testing.T, seed uint64) {
		b := newBooks(t, rand.New(rand.NewPCG(seed, 1)))
		defer func() {
			if t.Failed() {
				t.Logf("to repeat it: -run TestNumbers/seed_%[1]d -random.seed %[1]d; what was done:\n%s", seed, strings.Join(b.log, "\n"))
			}
		}()
		for n := range 80 {
			b.step()
			b.settle()
			b.counts()
			if n%4 == 3 {
				b.check()
			}
			if t.Failed() {
				return
			}
		}
	})
}

// A job is a task in the model.
type job struct {
	payload, key string
	place        string    // "list", "added", "scheduled", "running", "failed" or "handled", which is running in OnFailed
	due          time.Time // of a scheduled one; zero if it was returned to the front
	at           time.Time // the time it was added for; zero without one
	since        time.Time // when it had been added
	retries      int
	crashed      bool
	kept         bool        // OnFailed won't get it in the near future
	by           int         // who runs it
	task         *worqr.Task // if a peer runs it by hand
	end          chan<- error
}

// A began says that a handler has started.
type began struct {
	payload  string
	onFailed bool
	end      chan<- error
}

// The books are the model of a queue. Two peers work by hand; a third one has handlers, which end when the test says so.
type books struct {
	t       *testing.T
	ctx     context.Context
	r       *rand.Rand
	prefix  string
	start   time.Time
	hands   []*worqr.Peer
	q       *worqr.Queue
	server  *worqr.Peer // nil if it's stopped
	stop    func()
	verdict int64 // how many it got
	begins  chan began
	doctor  *worqr.Peer
	jobs    []*job
	paused  bool
	n       int
	log     []string
}

const (
	byServer  = 2 // job.by
	onFailedN = 2 // concurrency
	overdue   = 5 * time.Minute
	clocks    = 100 * time.Millisecond // by which the test's and Redis's may differ
)

var (
	errRetry = errors.New("later")
	errAgain = errors.New("again")
	errFail  = worqr.Permanent(errors.New("no"))
)

func newBooks(t *testing.T, r *rand.Rand) *books {
	b := &books{t: t, ctx: t.Context(), r: r, prefix: redistest.Prefix(t), start: time.Now(), begins: make(chan began, 100)}
	for range 2 {
		p := open(t, worqr.Options{Prefix: b.prefix, Lease: time.Hour})
		b.q = working(t, p, "q")
		b.hands = append(b.hands, p)
	}
	b.doctor = openDoctor(t, redistest.URL(), worqr.Options{Prefix: b.prefix, Lease: 150 * time.Millisecond})
	return b
}

func (b *books) note(format string, args ...any) { b.log = append(b.log, fmt.Sprintf(format, args...)) }

func (b *books) all(is func(*job) bool) (all []*job) {
	for _, j := range b.jobs {
		if is(j) {
			all = append(all, j)
		}
	}
	return all
}

func (b *books) in(place string) []*job { return b.all(func(j *job) bool { return j.place == place }) }

func (b *books) any(of []*job) *job {
	if len(of) == 0 {
		return nil
	}
	return of[b.r.IntN(len(of))]
}

func (b *books) drop(j *job) { b.jobs = slices.DeleteFunc(b.jobs, func(o *job) bool { return o == j }) }

func (b *books) under(key, place string) *job {
	for _, j := range b.in(place) {
		if key != "" && j.key == key {
			return j
		}
	}
	return nil
}

func (b *books) blocked(j *job) bool { return b.under(j.key, "running") != nil }

// ready reports whether a task could start.
func (b *books) ready(j *job) bool {
	return j.place == "list" || j.place == "added" || j.place == "scheduled" && !b.blocked(j) && j.due.Before(time.Now())
}

func (b *books) running(by int, place string) []*job {
	return b.all(func(j *job) bool { return j.place == place && j.by == by })
}

// returns puts a running task in the schedule, unless a newer one waits there, or on the list.
func (b *books) returns(j *job, due time.Time) {
	j.task, j.end = nil, nil
	switch {
	case j.place == "handled":
		j.place = "failed"
	case b.under(j.key, "scheduled") != nil:
		b.drop(j)
	case j.key == "" && due.IsZero() && j.retries == 0:
		j.place = "list"
	default:
		j.place, j.due = "scheduled", due
	}
}

var acts = []struct {
	weight int
	do     func(*books)
}{
	{5, (*books).enqueue}, {4, (*books).add}, {10, (*books).put}, {12, (*books).startByHand}, {14, (*books).endByHand}, {10, (*books).endHandler},
	{4, (*books).evict}, {3, (*books).serve}, {3, (*books).requeue}, {2, (*books).deleteFailed}, {2, (*books).removeKey}, {1, (*books).pause}, {1, (*books).deleteAll},
}

func (b *books) step() {
	sum := 0
	for _, a := range acts {
		sum += a.weight
	}
	n := b.r.IntN(sum)
	for _, a := range acts {
		if n -= a.weight; n < 0 {
			a.do(b)
			return
		}
	}
}

func (b *books) payload() string {
	b.n++
	return fmt.Sprint("p", b.n)
}

func (b *books) enqueue() {
	j := &job{payload: b.payload(), place: "list"}
	b.note("enqueue %s", j.payload)
	enqueue(b.t, b.q, j.payload)
	b.jobs = append(b.jobs, j)
}

func (b *books) add() {
	j := &job{payload: b.payload(), place: "added"}
	j.key = sure(b.q.Add(b.ctx, worqr.TaskSpec{Payload: []byte(j.payload)}))(b.t)[0]
	b.note("add %s", j.payload)
	j.since = time.Now()
	b.jobs = append(b.jobs, j)
}

func (b *books) put() {
	j := &job{payload: b.payload(), key: string(rune('a' + b.r.IntN(4))), place: "scheduled", due: time.Now().Truncate(time.Millisecond)}
	o := worqr.TaskSpec{Key: j.key, Payload: []byte(j.payload)}
	switch b.r.IntN(3) {
	case 0:
		o.At = j.due.Add(-time.Duration(10+b.r.IntN(110)) * time.Minute)
	case 1:
		o.At = j.due.Add(time.Duration(2+b.r.IntN(5)) * time.Hour)
	}
	if j.at = o.At; !o.At.IsZero() {
		j.due = o.At
	}
	b.note("put %s under %s, due in %v", j.payload, j.key, time.Until(j.due).Round(time.Second))
	add(b.t, b.q, o)
	j.since = time.Now()
	if old := b.under(j.key, "scheduled"); old != nil {
		b.drop(old)
	}
	b.jobs = append(b.jobs, j)
}

func (b *books) startByHand() {
	by := b.r.IntN(len(b.hands))
	tasks, err := b.hands[by].Queue("q").StartTasks(b.ctx, 1+b.r.IntN(2))
	if !is_(err, worqr.ErrNoTask) {
		must(b.t, err)
	}
	for _, task := range tasks {
		b.note("%d starts %s", by, task.Payload)
		if j := b.starts(string(task.Payload), "running", by); j != nil {
			j.task = task
		}
	}
}

// starts moves a task that was ready.
func (b *books) starts(payload, to string, by int) *job {
	for _, j := range b.jobs {
		if j.payload != payload || (j.place == "handled" || j.place == "running") {
			continue
		}
		if to == "running" && !b.ready(j) || to == "handled" && (j.place != "failed" || j.kept) {
			break
		}
		j.place, j.by = to, by
		return j
	}
	b.t.Errorf("%s starts, and isn't ready", payload)
	return nil
}

func (b *books) endByHand() {
	j := b.any(b.all(func(j *job) bool { return j.task != nil }))
	if j == nil {
		return
	}
	var err error
	switch b.r.IntN(6) {
	case 0:
		b.note("finish %s", j.payload)
		err = j.task.Finish(b.ctx)
		b.drop(j)
	case 1:
		b.note("stop %s", j.payload)
		err = j.task.Stop(b.ctx)
		b.returns(j, time.Time{})
	case 2:
		b.note("snooze %s", j.payload)
		err = j.task.Snooze(b.ctx, 2*time.Hour)
		b.puts(j, 2*time.Hour)
	case 3:
		b.note("retry %s", j.payload)
		err = j.task.Retry(b.ctx, time.Hour)
		j.retries++
		b.puts(j, time.Hour)
	default:
		b.note("fail %s", j.payload)
		err = j.task.Fail(b.ctx, errors.New("no"))
		b.fails(j)
	}
	must(b.t, err)
}

// puts plans a running task again.
func (b *books) puts(j *job, in time.Duration) { b.returns(j, time.Now().Add(in)) }

func (b *books) fails(j *job) {
	j.task, j.end, j.place, j.kept, j.retries = nil, nil, "failed", false, 0
}

// endHandler ends a handler, and waits until Redis knows.
func (b *books) endHandler() {
	j := b.any(b.all(func(j *job) bool { return j.end != nil }))
	if j == nil {
		return
	}
	how := []error{nil, errRetry, errAgain, errFail, errFail}[b.r.IntN(5)]
	b.note("the handler of %s (%s) returns %v", j.payload, j.place, how)
	j.end <- how
	b.verdict++
	eventually(b.t, "the end of a handler is reported", func() bool { s := b.server.Stats(); return s.Finished+s.Retried+s.Failed == b.verdict })
	switch {
	case how == nil:
		b.drop(j)
	case how == errFail && j.place == "running":
		b.fails(j)
	case j.place == "handled":
		b.returns(j, time.Time{})
		j.kept = how != errAgain
	case how == errAgain:
		j.retries++
		b.puts(j, 0)
	default:
		j.retries++
		b.puts(j, time.Hour)
	}
}

// evict evicts a worker, unless one of its tasks would then be close to its limit of crashes.
func (b *books) evict() {
	by := b.r.IntN(len(b.hands))
	victim, held := b.hands[by], b.running(by, "running")
	if slices.ContainsFunc(held, func(j *job) bool { return j.crashed }) {
		return
	}
	old := victim.WorkerID()
	b.note("evict %d, which has %d tasks", by, len(held))
	failWorker(b.t, b.hands[1-by], old, len(held))
	for _, j := range held { // now it knows
		if err := j.task.Finish(b.ctx); !is_(err, worqr.ErrNotOwner) {
			b.t.Errorf("an end by an evicted worker: %v", err)
		}
	}
	if len(held) == 0 {
		if _, err := victim.Queue("q").StartTask(b.ctx); !is_(err, worqr.ErrEvicted) && !is_(err, worqr.ErrNotWorking) {
			b.t.Errorf("a start by an evicted worker: %v", err)
		}
	}
	for _, j := range held {
		j.crashed = true
		b.returns(j, time.Time{})
	}
	eventually(b.t, "it is back", func() bool { return victim.WorkerID() != old && victim.Queue("q").StartWork(b.ctx) == nil })
}

// serve starts or stops the peer with handlers.
func (b *books) serve() {
	if b.server != nil {
		b.note("stop serving")
		b.stop()
		for _, j := range append(b.running(byServer, "running"), b.running(byServer, "handled")...) {
			b.returns(j, time.Time{})
		}
		b.server = nil
		return
	}
	b.note("serve")
	b.verdict = 0
	b.server = open(b.t, worqr.Options{Prefix: b.prefix, Lease: time.Hour, Drain: -1})
	handler := func(onFailed bool) worqr.Handler {
		return func(ctx context.Context, task *worqr.Task) error {
			end := make(chan error, 1)
			b.begins <- began{string(task.Payload), onFailed, end}
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	options := func(n int) *worqr.HandleOptions {
		return &worqr.HandleOptions{Concurrency: n, MaxRetries: 1000, MaxCrashes: -1, Prefetch: -1, Backoff: func(_ *worqr.Task, err error) time.Duration {
			if errors.Is(err, errAgain) {
				return 0
			}
			return time.Hour
		}}
	}
	o := options(1)
	o.OnFailed, o.OnFailedOptions = handler(true), options(onFailedN)
	b.server.Queue("q").Handle(handler(false), o)
	b.stop = run(b.t, b.server)
}

// requeue puts a failed task back, unless a task waits or runs under its key.
func (b *books) requeue() {
	j := b.any(b.in("failed"))
	if j == nil {
		return
	}
	taken := b.under(j.key, "scheduled") != nil || b.under(j.key, "running") != nil
	n := sure(b.q.RequeueFailed(b.ctx, b.id(j)))(b.t)
	b.note("requeue %s: %d", j.payload, n)
	if n != 1 && !taken || n != 0 && taken {
		b.t.Errorf("requeued %d; its key is in use: %v", n, taken)
	}
	switch {
	case n == 0:
	case j.key == "":
		j.place, j.crashed = "list", false
	default:
		j.place, j.due, j.crashed = "scheduled", time.Now(), false
	}
}

// id returns the id of a failed task.
func (b *books) id(j *job) string {
	for f := range each(b.t, b.q.Failed(b.ctx)) {
		if string(f.Payload) == j.payload {
			return f.ID
		}
	}
	b.t.Fatalf("%s isn't among the failed tasks", j.payload)
	return ""
}

func (b *books) deleteFailed() {
	j := b.any(b.in("failed"))
	if j == nil {
		return
	}
	b.note("delete the failed %s", j.payload)
	if n := sure(b.q.DeleteFailed(b.ctx, b.id(j)))(b.t); n != 1 {
		b.t.Errorf("deleted %d", n)
	}
	b.drop(j)
}

func (b *books) removeKey() {
	if j := b.any(b.all(func(j *job) bool { return j.place == "scheduled" && j.key != "" })); j != nil {
		b.note("remove %s", j.payload)
		if !sure(b.q.RemoveKey(b.ctx, j.key))(b.t) {
			b.t.Errorf("%s doesn't wait", j.payload)
		}
		b.drop(j)
	}
}

func (b *books) pause() {
	b.note("paused: %v", !b.paused)
	if b.paused = !b.paused; b.paused {
		must(b.t, b.q.Pause(b.ctx))
	} else {
		must(b.t, b.q.Resume(b.ctx))
	}
}

func (b *books) deleteAll() {
	b.note("delete")
	must(b.t, b.q.Delete(b.ctx))
	b.jobs = slices.DeleteFunc(b.jobs, func(j *job) bool { return j.place == "list" || j.place == "added" || j.place == "scheduled" })
}

// settle waits until the peer with handlers has started what it can.
func (b *books) settle() {
	for b.server != nil && !b.t.Failed() {
		main := !b.paused && len(b.running(byServer, "running")) == 0 && slices.ContainsFunc(b.jobs, b.ready)
		failed := len(b.running(byServer, "handled")) < onFailedN && slices.ContainsFunc(b.jobs, func(j *job) bool { return j.place == "failed" && !j.kept })
		if !main && !failed {
			return
		}
		one := receive(b.t, b.begins, 1)[0]
		b.note("the handler of %s begins; for failed tasks: %v", one.payload, one.onFailed)
		if j := b.starts(one.payload, map[bool]string{false: "running", true: "handled"}[one.onFailed], byServer); j != nil {
			j.end = one.end
		}
	}
}

// front returns the named task that starts next; nil if there's none. None in the schedule is due: what can start is
// ready.
func (b *books) front() *job {
	for n := range each(b.t, b.q.Named(b.ctx, inspect.NamedReady)) {
		i := slices.IndexFunc(b.jobs, func(j *job) bool { return j.payload == string(n.Payload) })
		if i < 0 || !b.ready(b.jobs[i]) {
			b.t.Fatalf("%s is ready in Redis only", n.Payload)
		}
		return b.jobs[i]
	}
	return nil
}

// counts compares Stats.
func (b *books) counts() {
	waits := time.Duration(0) // at least
	if j := b.front(); j != nil && !j.since.IsZero() {
		waits = time.Since(j.since)
	}
	s := stats(b.t, b.q)
	got := fmt.Sprint("waiting ", s.Waiting, ", scheduled ", s.Scheduled, ", running ", s.Running, ", failed ", s.Failed, ", paused ", s.Paused)
	ready := len(b.all(b.ready))
	want := fmt.Sprint("waiting ", ready, ", scheduled ", len(b.in("list"))+len(b.in("added"))+len(b.in("scheduled"))-ready, ", running ", len(b.in("running")),
		", failed ", len(b.in("failed")), ", paused ", b.paused)
	if got != want {
		b.t.Errorf("Stats: %s, want %s", got, want)
	}
	if most := time.Since(b.start); s.Oldest > most+clocks || s.Oldest < waits-clocks {
		b.t.Errorf("the oldest has waited for %v, want %v to %v", s.Oldest, waits, most)
	}
	for f := range each(b.t, b.q.Failed(b.ctx)) {
		if f.FailedAt.Before(b.start.Add(-time.Second)) || f.FailedAt.After(time.Now().Add(time.Second)) {
			b.t.Errorf("it failed at %v", f.FailedAt)
		}
	}
}

var dueAgo = regexp.MustCompile(`It could have started (\S+) ago`)

// check compares what Check finds, with limits that let it tell all numbers.
func (b *books) check() {
	ready := len(b.all(b.ready))
	retrying := len(b.all(func(j *job) bool { return j.place == "scheduled" && j.retries > 0 && !b.blocked(j) }))
	want := map[inspect.FindingKind]string{}
	if ready > 0 {
		want["backlog"] = fmt.Sprintf("%s waiting. The limit is 0.", several(ready, "task is", "tasks are"))
	}
	if ready > 0 && b.paused {
		want["paused"] = fmt.Sprintf("%s waiting, and the queue is paused.", several(ready, "task is", "tasks are"))
	} else if b.paused {
		want["paused"] = "The queue is paused."
	}
	if retrying > 0 {
		want["retrying"] = fmt.Sprintf("%s waiting for a retry. The limit is 0.", several(retrying, "task is", "tasks are"))
	}
	if n := len(b.in("failed")); n > 0 {
		want["failed"] = fmt.Sprintf("%s failed for good. All failed in the last 10 minutes.", several(n, "task", "tasks"))
		if n >= 5 {
			want["failing"] = fmt.Sprintf("%d tasks have failed for good, far more than usual.", n)
		}
	}
	late := time.Duration(0)
	if j := b.front(); j != nil && !b.paused && !j.at.IsZero() && time.Since(j.at) > overdue {
		late = time.Since(j.at)
		want["overdue"] = fmt.Sprintf("%s waiting, and the first one is late.", several(ready, "task is", "tasks are"))
		if len(b.in("running"))+len(b.in("handled")) == 0 {
			want["starved"] = fmt.Sprintf("%s waiting on this queue, nothing runs there", several(ready, "task is", "tasks are"))
		}
	}
	began := time.Now()
	report := sure(b.doctor.Check(b.ctx, &inspect.CheckOptions{MaxWaitTime: overdue, MaxBacklog: -1, MaxRetrying: -1, MaxFailed: -1}))(b.t)
	for _, f := range report.Findings {
		if !service[f.Kind] && want[f.Kind] == "" && f.Severity == inspect.SeverityNotice || f.Kind == "persistence" || f.Kind == "evicted" {
			continue // about the server
		}
		if want[f.Kind] == "" || !strings.HasPrefix(f.Text, want[f.Kind]) {
			b.t.Errorf("Check: %s %s: %s; want %q", f.Severity, f.Kind, f.Text, want[f.Kind])
		}
		if m := dueAgo.FindStringSubmatch(f.Text); m != nil {
			if is := sure(time.ParseDuration(m[1]))(b.t); is < late-time.Second || is > late+time.Since(began)+time.Second {
				b.t.Errorf("a task was due %v ago, want %v", is, late)
			}
		}
		delete(want, f.Kind)
	}
	if len(want) > 0 {
		b.t.Errorf("Check doesn't find %v", want)
	}
}

func several(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
