package api

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "first seed of TestModel; 0 is a new one")
	modelSeeds = flag.Uint64("model.seeds", 8, "how many seeds TestModel tries")
)

// TestModel does random things to a queue from three peers, and after each
// compares all that is in Redis with a model.
func TestModel(t *testing.T) {
	t.Parallel()
	first := *modelSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	for seed := first; seed < first+*modelSeeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			modelRun(t, rand.NewPCG(seed, 0), 250, fmt.Sprintf("-run TestModel -model.seed %d -model.seeds 1", seed))
		})
	}
}

// FuzzModel lets the fuzzer choose what is done: each choice takes a byte.
func FuzzModel(f *testing.F) {
	f.Add([]byte("any text will do, since each byte of it is a choice"))
	f.Add(bytes.Repeat([]byte{0, 85, 170, 255}, 40))
	f.Fuzz(func(t *testing.T, choices []byte) {
		modelRun(t, &chooser{choices, rand.NewPCG(0, 0)}, min(len(choices)/3, 100), "-run FuzzModel, with the file that is named above")
	})
}

// A chooser is a source of choices, and of others when these are used up.
type chooser struct {
	choices []byte
	others  rand.Source
}

func (c *chooser) Uint64() uint64 {
	if len(c.choices) == 0 {
		return c.others.Uint64()
	}
	b := c.choices[0]
	c.choices = c.choices[1:]
	return uint64(b) * 0x0101010101010101
}

// A fleet is three peers and what they should have made of their queue.
type fleet struct {
	t      testing.TB
	ctx    context.Context
	r      *rand.Rand
	prefix string
	c      redis.Conn
	peers  []*worqr.Peer
	queues []*worqr.Queue
	ids    []string // of the present incarnations
	m      *model
	log    []string
	start  time.Time // of all

	// This step.
	i     int // the peer
	q     *worqr.Queue
	began int64 // by the clock of Redis
	ended int64
}

func newFleet(t *testing.T, choices rand.Source) *fleet {
	f := &fleet{t: t, ctx: t.Context(), r: rand.New(choices), prefix: redistest.Prefix(t), c: redistest.Conn(t), m: newModel()}
	for range 3 {
		p := open(t, worqr.Options{Prefix: f.prefix, Lease: time.Hour})
		f.peers = append(f.peers, p)
		f.queues = append(f.queues, working(t, p, "q"))
		f.ids = append(f.ids, p.WorkerID())
		f.m.held[p.WorkerID()] = nil
	}
	f.start = time.UnixMilli(f.now())
	return f
}

func modelRun(t *testing.T, choices rand.Source, steps int, repeat string) {
	f := newFleet(t, choices)
	defer func() {
		if t.Failed() {
			t.Logf("to repeat it: %s; what was done:\n%s", repeat, strings.Join(f.log, "\n"))
		}
	}()
	for n := range steps {
		f.step()
		if n%25 == 0 {
			f.examine()
		}
		if t.Failed() {
			return
		}
	}
	f.leaveNothing()
	f.examine()
}

// examine has all invariants checked, by Check and by the way of Repair.
func (f *fleet) examine() {
	f.t.Helper()
	doctor := openDoctor(f.t, redistest.URL(), worqr.Options{Prefix: f.prefix, Lease: 150 * time.Millisecond})
	for _, do := range []func(context.Context, *worqr.CheckOptions) (*worqr.CheckReport, error){doctor.Check, doctor.Repair} {
		report, err := do(f.ctx, nil)
		must(f.t, err)
		for _, ill := range ills(report) {
			if ill.Kind != "no-worker" && ill.Kind != "paused" { // when all have left, or it is paused
				f.t.Errorf("a queue that is well: %v", ill)
			}
		}
	}
	must(f.t, doctor.Close())
}

func (f *fleet) leaveNothing() {
	t := f.t
	f.begin()
	for i, p := range f.peers {
		f.note("stop the worker")
		must(t, p.StopWorker(f.ctx))
		f.expect(func(m *model, _ int64, _ state) {
			m.giveBack(m.held[f.ids[i]], 0)
			delete(m.held, f.ids[i])
		})
	}
	q := f.queues[0]
	must(t, q.Resume(f.ctx))
	must(t, q.Delete(f.ctx))
	_, err := q.DeleteAllFailed(f.ctx)
	must(t, err)
	for _, k := range redistest.Keys(t, f.c, f.prefix) {
		ttl, err := redis.Int(f.c.Do("TTL", k))
		must(t, err)
		if k != f.prefix+":registry" && k != f.prefix+":token:{q}" && k != f.prefix+":failed:token:{q}" && (ttl <= 0 || ttl > 600) {
			t.Errorf("left behind: %s", k)
		}
	}
}

func (f *fleet) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf("%d: ", f.i)+fmt.Sprintf(format, args...))
}

func (f *fleet) begin() {
	f.i = f.r.IntN(len(f.peers))
	f.q, f.began = f.queues[f.i], f.now()
}

// modelOps are what is done, and how often.
var modelOps = []struct {
	weight int
	do     func(*fleet)
}{
	{8, (*fleet).enqueue},
	{6, (*fleet).enqueueUnique},
	{2, (*fleet).enqueueOnce},
	{4, (*fleet).enqueueAt},
	{20, (*fleet).put},
	{2, (*fleet).remove},
	{3, (*fleet).cancelKey},
	{3, (*fleet).cancel},
	{24, (*fleet).startTasks},
	{30, (*fleet).endTask},
	{6, (*fleet).failWorker},
	{2, (*fleet).stopWork},
	{1, (*fleet).delete},
	{2, (*fleet).pause},
	{5, (*fleet).requeueFailed},
	{1, (*fleet).deleteFailed},
}

func (f *fleet) step() {
	f.t.Helper()
	f.begin()
	sum := 0
	for _, op := range modelOps {
		sum += op.weight
	}
	n := f.r.IntN(sum)
	if f.m.paused && f.r.IntN(8) == 0 {
		f.pause() // not for long
		return
	}
	for _, op := range modelOps {
		if n -= op.weight; n < 0 {
			before := len(f.log)
			op.do(f)
			if len(f.log) > before && !f.t.Failed() {
				f.readouts()
				f.cancels()
			}
			return
		}
	}
}

// expect holds Redis against the model after an effect. The effect is told when
// it took place, which is found by trying, and what Redis has now.
func (f *fleet) expect(effect func(m *model, now int64, got state)) {
	f.t.Helper()
	f.ended = f.now()
	got := readState(f.t, f.c, f.prefix)
	var best *model
	var lines []string
	for now := f.began; now <= f.ended && (best == nil || len(lines) > 0); now++ {
		m := f.m.clone()
		effect(m, now, got)
		if diff := got.differ(m.state()); best == nil || len(diff) < len(lines) {
			best, lines = m, diff
		}
	}
	f.m = best
	if len(lines) > 0 {
		f.t.Errorf("the queue is not as it should be:\n%s", strings.Join(lines, "\n"))
	}
}

func (f *fleet) payload() string { return string(rune('a' + f.r.IntN(4))) }

// key is one of a few, or at times any that waits.
func (f *fleet) key() string {
	if names := f.m.scheduled(); len(names) > 0 && f.r.IntN(4) == 0 {
		if name := names[f.r.IntN(len(names))]; isKey(name) {
			return name[2:]
		}
	}
	return string(rune('x' + f.r.IntN(3)))
}

// time is now, or past, or far away; as it is asked for, and as Redis has it.
func (f *fleet) time() (at time.Time, ms int64) {
	switch f.r.IntN(4) {
	case 0, 1:
		return time.Time{}, 0
	case 2:
		at = f.start.Add(-time.Duration(1+f.r.IntN(9)) * time.Minute)
	default:
		at = f.start.Add(time.Duration(3+f.r.IntN(9)) * time.Hour)
	}
	if f.r.IntN(3) == 0 {
		return at.Add(-time.Microsecond), at.UnixMilli() // not too early
	}
	return at, at.UnixMilli()
}

func (f *fleet) enqueue() {
	var some []string
	var bytes [][]byte
	for range 1 + f.r.IntN(3) {
		p := f.payload()
		some, bytes = append(some, p), append(bytes, []byte(p))
	}
	f.note("enqueue %s", some)
	must(f.t, f.q.Enqueue(f.ctx, bytes...))
	f.expect(func(m *model, _ int64, _ state) {
		for _, p := range some {
			m.push(p)
		}
	})
}

func (f *fleet) enqueueUnique() {
	p := f.payload()
	f.note("enqueue unique %s", p)
	err := f.q.EnqueueUnique(f.ctx, []byte(p))
	if !is_(err, worqr.ErrDuplicate) {
		must(f.t, err)
	}
	f.expect(func(m *model, _ int64, _ state) {
		_, locked := m.locks[p]
		m.should(locked == (err != nil), "unique:", p, fmt.Sprint(err))
		if !locked {
			m.locks[p] = m.push(p)
		}
	})
}

func (f *fleet) enqueueOnce() {
	p, nonce := f.payload(), fmt.Sprint(f.r.IntN(5))
	f.note("enqueue once %s %s", nonce, p)
	fresh, err := f.q.EnqueueOnce(f.ctx, nonce, []byte(p))
	must(f.t, err)
	f.expect(func(m *model, _ int64, _ state) {
		m.should(fresh != m.once[nonce], "once:", nonce)
		if !m.once[nonce] {
			m.once[nonce] = true
			m.push(p)
		}
	})
}

func (f *fleet) enqueueAt() {
	p := f.payload()
	at, ms := f.time()
	key, err := f.q.EnqueueAt(f.ctx, at, []byte(p))
	must(f.t, err)
	f.note("enqueue %s at %d: %s", p, ms, key)
	f.expect(func(m *model, now int64, _ state) { m.put("k:"+key, change{payload: p, at: ms}, now) })
}

func (f *fleet) put() {
	key, p := f.key(), f.payload()
	if f.r.IntN(3) == 0 {
		f.note("put %s %s", key, p)
		must(f.t, f.q.Put(f.ctx, key, []byte(p), nil))
		f.expect(func(m *model, now int64, _ state) { m.put("k:"+key, change{payload: p}, now) })
		return
	}
	at, ms := f.time()
	o := &worqr.PutOptions{At: at, KeepPayload: f.r.IntN(3) == 0, Reschedule: worqr.Reschedule(f.r.IntN(4)), KeepCounts: f.r.IntN(2) == 0}
	f.note("put %s %s at %d, when %d, keep payload %v, counts %v", key, p, ms, o.Reschedule, o.KeepPayload, o.KeepCounts)
	must(f.t, f.q.Put(f.ctx, key, []byte(p), o))
	f.expect(func(m *model, now int64, _ state) {
		m.put("k:"+key, change{payload: p, at: ms, when: o.Reschedule, keep: o.KeepPayload, counts: o.KeepCounts}, now)
	})
}

func (f *fleet) remove() {
	key := f.key()
	f.note("remove %s", key)
	removed, err := f.q.RemoveKey(f.ctx, key)
	must(f.t, err)
	f.expect(func(m *model, _ int64, _ state) {
		m.should(m.remove("k:"+key) == removed, "removed:", key, fmt.Sprint(removed))
	})
}

func (f *fleet) cancelKey() {
	key := f.key()
	f.note("cancel key %s", key)
	report, err := f.q.CancelKey(f.ctx, key)
	must(f.t, err)
	f.expect(func(m *model, _ int64, _ state) {
		m.should(m.remove("k:"+key) == (report.Removed == 1), "canceled:", key, decimal(report.Removed))
		m.stopRunning("k:"+key, func(r running) bool { return r.entry == "k:"+key })
	})
}

func (f *fleet) cancel() {
	p := f.payload()
	f.note("cancel %s", p)
	report, err := f.q.Cancel(f.ctx, []byte(p))
	must(f.t, err)
	f.expect(func(m *model, _ int64, _ state) {
		n := m.cancel(p)
		m.should(n == report.Removed, "canceled:", p, decimal(report.Removed), "want", decimal(n))
	})
}

func (f *fleet) startTasks() {
	n := 1 + f.r.IntN(3)
	tasks, err := f.q.StartTasks(f.ctx, n)
	if !is_(err, worqr.ErrNoTask) {
		must(f.t, err)
	}
	f.note("start %d: %q", n, payloads(tasks))
	f.expect(func(m *model, now int64, got state) {
		before := m.state()
		graves, moved := got.added(before, "failed:keyed:k:"), got.added(before, "keyed:")
		m.start(f.ids[f.i], n, tasks, graves, moved, now, func(key, field string) int64 { // takes several calls
			at := got.number(key, field)
			m.should(f.began <= at && at <= f.ended, field, decimal(at))
			return at
		})
	})
}

func (f *fleet) endTask() {
	id := f.ids[f.i]
	held := f.m.held[id]
	if len(held) == 0 {
		return
	}
	r := held[f.r.IntN(len(held))]
	task := r.task
	called := fmt.Sprintf("%s %s (key %q, canceled %v)", task.AttemptID, task.Payload, r.entry, len(r.canceledName) > 0)
	var effect func(m *model, now int64, _ state)
	var end func() error
	switch f.r.IntN(7) {
	case 0, 1:
		f.note("finish %s", called)
		end = func() error { return task.Finish(f.ctx) }
		effect = func(m *model, _ int64, _ state) { m.finish(id, task.AttemptID) }
	case 2:
		f.note("stop %s", called)
		end = func() error { return task.Stop(f.ctx) }
		effect = func(m *model, _ int64, _ state) { m.giveBack([]running{m.let(id, task.AttemptID)}, 0) }
	case 3, 4, 5:
		var delay time.Duration
		if f.r.IntN(3) == 0 {
			delay = time.Duration(100+f.r.IntN(9)) * time.Hour
		}
		f.note("retry %s in %v", called, delay)
		end = func() error { return task.Retry(f.ctx, delay) }
		effect = func(m *model, now int64, _ state) { m.retry(id, task.AttemptID, now+delay.Milliseconds()) }
	default:
		err, kind := errors.New("some-reason"), "failed"
		if f.r.IntN(2) == 0 {
			err, kind = worqr.Malformed(err), "broken"
		}
		f.note("fail %s: %s", called, kind)
		end = func() error { return task.Fail(f.ctx, err) }
		effect = func(m *model, now int64, _ state) { m.fail(id, task.AttemptID, kind, "some-reason", now) }
	}
	must(f.t, end())
	switch f.r.IntN(8) {
	case 0:
		must(f.t, end()) // again
	case 1:
		if err := task.Retry(f.ctx, 0); err != nil && !is_(err, worqr.ErrNotOwner) {
			f.t.Errorf("after its end: %v", err)
		}
	}
	f.expect(effect)
}

func (f *fleet) failWorker() {
	t, victim := f.t, f.r.IntN(len(f.peers))
	old := f.ids[victim]
	f.note("fail worker %d, %s", victim, old)
	n, err := f.peers[f.i].FailWorker(f.ctx, old)
	must(t, err)
	held := f.m.held[old]
	for _, r := range held { // nothing that it does counts any more
		for _, end := range []func() error{
			func() error { return r.task.Finish(f.ctx) },
			func() error { return r.task.Retry(f.ctx, 0) },
			func() error { return r.task.Fail(f.ctx, errors.New("late")) },
		} {
			if err := end(); !is_(err, worqr.ErrNotOwner) {
				t.Errorf("an end by a failed worker: %v", err)
			}
		}
	}
	if len(held) == 0 { // it may not have noticed
		if _, err := f.queues[victim].StartTask(f.ctx); !is_(err, worqr.ErrEvicted) && !is_(err, worqr.ErrNotWorking) {
			t.Errorf("start by a failed worker: %v", err)
		}
	}
	eventually(t, "it is back", func() bool {
		return f.peers[victim].WorkerID() != old && f.queues[victim].StartWork(f.ctx) == nil
	})
	f.ids[victim] = f.peers[victim].WorkerID()
	f.note("it is back as %s", f.ids[victim])
	f.expect(func(m *model, _ int64, _ state) {
		want := m.giveBack(m.held[old], 1)
		m.should(n == want, "returned", decimal(n), "want", decimal(want))
		delete(m.held, old)
		m.held[f.ids[victim]] = nil
	})
}

func (f *fleet) stopWork() {
	f.note("stop work and start again")
	must(f.t, f.q.StopWork(f.ctx))
	must(f.t, f.q.StartWork(f.ctx))
	f.expect(func(m *model, _ int64, _ state) {
		m.giveBack(m.held[f.ids[f.i]], 0)
		m.held[f.ids[f.i]] = nil
	})
}

func (f *fleet) delete() {
	f.note("delete")
	must(f.t, f.q.Delete(f.ctx))
	f.expect(func(m *model, _ int64, _ state) { m.delete() })
}

func (f *fleet) pause() {
	f.note("pause or resume")
	if f.m.paused {
		must(f.t, f.q.Resume(f.ctx))
	} else {
		must(f.t, f.q.Pause(f.ctx))
	}
	f.expect(func(m *model, _ int64, _ state) { m.paused = !m.paused })
}

// someFailed names one or all failed tasks.
func (f *fleet) someFailed() (ids []string) {
	if all := f.m.graves(); len(all) > 0 && f.r.IntN(2) == 0 {
		ids = []string{all[f.r.IntN(len(all))]}
		if f.r.IntN(3) == 0 {
			ids = append(ids, "nobody", all[f.r.IntN(len(all))])
		}
	}
	return ids
}

func (f *fleet) requeueFailed() {
	ids := f.someFailed()
	f.note("requeue failed %s", ids)
	requeue := func() (int, error) { return f.q.RequeueFailed(f.ctx, ids...) }
	if len(ids) == 0 {
		requeue = func() (int, error) { return f.q.RequeueAllFailed(f.ctx) }
	}
	n, err := requeue()
	must(f.t, err)
	f.expect(func(m *model, now int64, _ state) {
		if len(ids) == 0 {
			ids = m.graves()
		}
		want := m.requeue(ids, now)
		m.should(n == want, "requeued", decimal(n), "want", decimal(want))
	})
}

func (f *fleet) deleteFailed() {
	ids := f.someFailed()
	f.note("delete failed %s", ids)
	drop := func() (int, error) { return f.q.DeleteFailed(f.ctx, ids...) }
	if len(ids) == 0 {
		drop = func() (int, error) { return f.q.DeleteAllFailed(f.ctx) }
	}
	n, err := drop()
	must(f.t, err)
	f.expect(func(m *model, _ int64, _ state) {
		before := len(m.failed)
		for _, id := range ids {
			delete(m.failed, id)
		}
		if len(ids) == 0 {
			clear(m.failed)
		}
		m.should(n == before-len(m.failed), "deleted", decimal(n), "of", decimal(before))
	})
}

func (f *fleet) now() int64 {
	f.t.Helper()
	time, err := redis.Int64s(f.c.Do("TIME"))
	must(f.t, err)
	return time[0]*1000 + time[1]/1000
}

// readouts holds what the library tells of the queue against the model.
func (f *fleet) readouts() {
	t, m, q := f.t, f.m, f.q
	t.Helper()
	due, later := m.waiting(f.now())
	same(t, "Tasks", waiting(t, q), slices.Concat(due, later))
	next, err := q.Peek(f.ctx)
	if len(due) == 0 != is_(err, worqr.ErrNoTask) || len(due) > 0 && string(next) != due[0] {
		t.Errorf("Peek: %q, %v; want %q", next, err, due)
	}
	want := worqr.QueueStats{Waiting: len(m.list), Failed: len(m.failed), Workers: len(f.peers), Paused: m.paused}
	for _, e := range m.entries {
		if e.waits {
			want.Scheduled++
		}
	}
	for _, runs := range m.held {
		want.Running += len(runs)
	}
	stats, err := q.Stats(f.ctx)
	must(t, err)
	n, err := q.Len(f.ctx)
	must(t, err)
	if stats != want || n != want.Waiting+want.Scheduled {
		t.Errorf("%+v and %d, want %+v", stats, n, want)
	}
	var scheduled, planned, failed, graves []string
	asked := f.now()
	for s, err := range q.Scheduled(f.ctx) {
		must(t, err)
		if s.Key == "" {
			s.Crashes = 0 // is counted by content
		}
		at := s.DueAt.UnixMilli()
		if at >= asked && len(scheduled) < len(m.scheduled()) && m.entries[m.scheduled()[len(scheduled)]].due < 1e12 {
			at = m.entries[m.scheduled()[len(scheduled)]].due // it went back to the front, which is now
		}
		scheduled = append(scheduled, fmt.Sprintln(s.Key, string(s.Payload), at, s.Retries, s.Crashes))
	}
	for _, name := range m.scheduled() {
		e, key := m.entries[name], ""
		if isKey(name) {
			key = name[2:]
		} else {
			e.crashes = 0
		}
		planned = append(planned, fmt.Sprintln(key, e.payload, e.due, e.retries, e.crashes))
	}
	same(t, "Scheduled", scheduled, planned)
	for s, err := range q.Failed(f.ctx) {
		must(t, err)
		failed = append(failed, fmt.Sprintln(s.ID, s.Key, string(s.Payload), s.Kind, s.Error, s.Retries, s.Crashes, s.WorkerID, s.FailedAt.UnixMilli()))
	}
	for _, id := range m.graves() {
		g := m.failed[id]
		graves = append(graves, fmt.Sprintln(id, strings.TrimPrefix(g.from, "k:"), g.payload, g.kind, g.reason, g.tries, g.deaths, g.worker, g.at))
	}
	same(t, "Failed", failed, graves)
}

// cancels checks that who runs something canceled is told, and nobody else;
// and that nothing is left of a cancel once nothing of it runs and the holders
// have said so.
func (f *fleet) cancels() {
	t := f.t
	t.Helper()
	want := map[string]bool{}
	for _, runs := range f.m.held {
		for _, r := range runs {
			for _, name := range r.canceledName {
				want[name] = true
			}
			if len(r.canceledName) == 0 {
				if err := r.task.Context().Err(); err != nil {
					t.Errorf("%s %s: %v", r.task.AttemptID, r.payload, context.Cause(r.task.Context()))
				}
				continue
			}
			select {
			case <-r.task.Context().Done():
				if cause := context.Cause(r.task.Context()); !is_(cause, worqr.ErrCanceled) {
					t.Errorf("%s %s: %v", r.task.AttemptID, r.payload, cause)
				}
			case <-time.After(patience):
				t.Errorf("%s %s is not canceled", r.task.AttemptID, r.payload)
			}
		}
	}
	eventually(t, "the cancel log is in order", func() bool {
		names, err := redis.Strings(f.c.Do("ZRANGE", f.prefix+":canceled:{q}", 0, -1))
		must(t, err)
		for _, name := range names {
			if !want[name] {
				return false
			}
		}
		return len(names) == len(want)
	})
}

// payloads counts what is in Redis, without what the two parts of a key replace of
// one another when the running one comes back, and what a cancel covers.
func (f *fleet) payloads() map[string]int {
	f.t.Helper()
	all := map[string]int{}
	strs := func(v any, err error) []string {
		s, err := redis.Strings(v, err)
		must(f.t, err)
		return s
	}
	replaced, canceled := map[string]bool{}, map[string]bool{}
	keys := redistest.Keys(f.t, f.c, f.prefix)
	for _, key := range keys {
		switch rest := strings.TrimPrefix(strings.TrimPrefix(key, f.prefix), ":failed"); {
		case strings.HasPrefix(rest, ":keyed:"):
			fields, err := redis.StringMap(f.c.Do("HGETALL", key))
			must(f.t, err)
			payload, waits := fields["payload"]
			switch {
			case waits && fields["keep"] == "1": // what runs replaces it
			case waits:
				all[payload]++
				replaced[strings.Replace(strings.SplitN(key, "{q}", 2)[0], "keyed", "process", 1)+"{q}:"+fields["process"]] = true
			}
		case strings.HasPrefix(rest, ":canceled:"):
			for _, name := range strs(f.c.Do("ZRANGE", key, 0, -1)) {
				canceled[name] = true
			}
		}
	}
	entries, err := redis.StringMap(f.c.Do("HGETALL", f.prefix+":entries:{q}"))
	must(f.t, err)
	for _, key := range keys {
		rest := strings.TrimPrefix(strings.TrimPrefix(key, f.prefix), ":failed")
		if !strings.HasPrefix(rest, ":queues:") && !strings.HasPrefix(rest, ":process:") || replaced[key] {
			continue
		}
		_, id, _ := strings.Cut(rest, "{q}:")
		for _, payload := range strs(f.c.Do("LRANGE", key, 0, -1)) {
			if !canceled[sha(payload)] && !canceled[entries[id]] {
				all[payload]++
			}
		}
	}
	return all
}

// harm breaks something that is no task.
func (f *fleet) harm() string {
	f.t.Helper()
	var keys []string
	for _, key := range redistest.Keys(f.t, f.c, f.prefix) {
		rest := strings.TrimPrefix(strings.TrimPrefix(key, f.prefix), ":failed")
		if !strings.HasPrefix(rest, ":queues:") && !strings.HasPrefix(rest, ":process:") {
			keys = append(keys, key)
		}
	}
	key := keys[f.r.IntN(len(keys))]
	do := func(command string, args ...any) string {
		_, err := f.c.Do(command, append([]any{key}, args...)...)
		must(f.t, err)
		return fmt.Sprintln(command, key, args)
	}
	kind, err := redis.String(f.c.Do("TYPE", key))
	must(f.t, err)
	if strings.Contains(key, ":keyed:") {
		return do("HDEL", []any{"process", "due", "tried", "low"}[f.r.IntN(4)])
	}
	if f.r.IntN(2) == 0 || kind == "string" {
		return do("DEL")
	}
	remove := map[string][2]string{"zset": {"ZRANGE", "ZREM"}, "hash": {"HKEYS", "HDEL"}, "set": {"SMEMBERS", "SREM"}}[kind]
	args := []any{key}
	if kind == "zset" {
		args = append(args, 0, -1)
	}
	members, err := redis.Strings(f.c.Do(remove[0], args...))
	must(f.t, err)
	slices.Sort(members)
	if kind == "zset" && f.r.IntN(3) == 0 {
		return do("ZADD", f.r.IntN(100), members[f.r.IntN(len(members))])
	}
	return do(remove[1], members[f.r.IntN(len(members))])
}
