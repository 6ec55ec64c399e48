package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

var (
	randomSeed  = flag.Uint64("random.seed", 0, "first seed of TestRandom; 0 is a new one")
	randomSeeds = flag.Uint64("random.seeds", 1, "how many seeds TestRandom tries")
)

// eachSeed runs try as a subtest for each of times × -random.seeds seeds.
func eachSeed(t *testing.T, times uint64, try func(t *testing.T, seed uint64)) {
	t.Parallel()
	first := *randomSeed
	if first == 0 {
		first = rand.Uint64()
	}
	for seed := first; seed < first+times*(*randomSeeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			try(t, seed)
		})
	}
}

// TestRandom performs random operations on a queue from three peers. What the library returns must
// match the calls, the replies and what is in Redis, and no rule of the protocol may be broken.
// Package integration/spec checks that the scripts do what the specification says.
func TestRandom(t *testing.T) {
	eachSeed(t, 1, func(t *testing.T, seed uint64) {
		random(t, rand.NewPCG(seed, 0), 250, fmt.Sprintf("-run TestRandom -random.seed %d -random.seeds 1", seed))
	})
}

// FuzzRandom lets the fuzzer choose the operations: each choice consumes a byte.
func FuzzRandom(f *testing.F) {
	f.Add([]byte("any text will do, since each byte of it is a choice"))
	f.Add(bytes.Repeat([]byte{0, 85, 170, 255}, 40))
	f.Fuzz(func(t *testing.T, choices []byte) {
		t.Parallel()
		random(t, &chooser{choices, rand.NewPCG(0, 0)}, min(len(choices)/3, 100), "-run FuzzRandom, with the file that is named above")
	})
}

// A chooser is a source of choices. When they are used up, it returns numbers of another source.
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

// A fleet is three peers and the tasks that their callers hold.
type fleet struct {
	*front
	t      testing.TB
	ctx    context.Context
	r      *rand.Rand
	c      redis.Conn
	peers  []*worqr.Peer
	queues []*worqr.Queue
	held   map[string]*worqr.Task // by attempt id
	log    []string
	start  time.Time                 // of the test
	wanted map[string]worqr.TaskSpec // of added tasks, by key

	// The current step.
	i int // the peer
	q *worqr.Queue
}

func newFleet(t *testing.T, choices rand.Source) *fleet {
	f := &fleet{front: newFront(t), t: t, ctx: t.Context(), r: rand.New(choices), c: redistest.Conn(t), held: map[string]*worqr.Task{}, wanted: map[string]worqr.TaskSpec{}}
	for range 3 {
		p := f.open(t, redistest.Worker(t, redistest.URL(), f.prefix), worqr.Options{Lease: time.Hour, Drain: time.Second})
		f.peers, f.queues = append(f.peers, p), append(f.queues, working(t, p, "q"))
	}
	f.start = time.UnixMilli(f.redisTime())
	return f
}

func random(t *testing.T, choices rand.Source, steps int, repeat string) {
	f := newFleet(t, choices)
	defer func() {
		if t.Failed() {
			t.Logf("to repeat it: %s; what was done:\n%s", repeat, strings.Join(f.log, "\n"))
		}
	}()
	for n := range steps {
		if f.step(); n%25 == 0 {
			f.examine()
		}
		if t.Failed() {
			return
		}
	}
	f.leaveNothing()
	f.examine()
}

// operations are the random operations and how often each is chosen.
var operations = []struct {
	weight int
	do     func(*fleet)
}{
	{8, (*fleet).enqueue}, {6, (*fleet).enqueueUnique}, {2, (*fleet).enqueueOnce}, {4, (*fleet).enqueueAt}, {20, (*fleet).put},
	{2, (*fleet).remove}, {3, (*fleet).cancelKey}, {3, (*fleet).cancel}, {24, (*fleet).startTasks}, {30, (*fleet).endTask},
	{6, (*fleet).failWorker}, {2, (*fleet).stopWork}, {1, (*fleet).delete}, {2, (*fleet).pause},
	{5, (*fleet).requeueFailed}, {1, (*fleet).deleteFailed}, {14, (*fleet).add}, {2, (*fleet).addMany},
}

func (f *fleet) step() {
	f.t.Helper()
	f.next(f.r.IntN(len(f.peers)))
	sum := 0
	for _, op := range operations {
		sum += op.weight
	}
	n := f.r.IntN(sum)
	if f.view(false).Paused && f.r.IntN(8) == 0 {
		f.pause() // so that it isn't paused for long
		return
	}
	for _, op := range operations {
		if n -= op.weight; n < 0 {
			op.do(f)
			break
		}
	}
	f.readouts()
	f.results()
	f.cancels()
	f.judge()
}

func (f *fleet) next(peer int) {
	f.i, f.q = peer, f.queues[peer]
	f.begin()
}

func (f *fleet) judge() {
	f.t.Helper()
	for _, w := range f.verdict() {
		f.t.Error(w)
	}
}

func (f *fleet) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf("%d: ", f.i)+fmt.Sprintf(format, args...))
}

func (f *fleet) check(holds bool, what string, args ...any) {
	f.t.Helper()
	if !holds {
		f.t.Errorf(what, args...)
	}
}

// called checks that this operation called a verb once, with these arguments, and returns the
// reply. The arguments are names and values in turn; a name that ends in … stands for the rest.
func (f *fleet) called(verb string, args ...any) any {
	f.t.Helper()
	all := f.made(verb)
	if len(all) != 1 {
		f.t.Fatalf("it calls %s: %v", verb, all)
	}
	for i := 0; i < len(args); i += 2 {
		got, name := any(nil), args[i].(string)
		if got = all[0].Rest(); !strings.HasSuffix(name, "…") {
			got = all[0].Arg(name)
		}
		f.check(fmt.Sprint(got) == fmt.Sprint(args[i+1]), "it calls %s with %q, and the %s is not %v", verb, all[0].Args, name, args[i+1])
	}
	return all[0].reply
}

// examine checks all invariants, with Check and with Repair.
func (f *fleet) examine() {
	f.t.Helper()
	doctor := f.open(f.t, redistest.Doctor(f.t, redistest.URL(), f.prefix), worqr.Options{Lease: 150 * time.Millisecond})
	for _, do := range []func(context.Context, *inspect.CheckOptions) (*inspect.CheckReport, error){doctor.Check, doctor.Repair} {
		report := sure(do(f.ctx, nil))(f.t)
		for _, ill := range ills(report) {
			if ill.Kind != "no-worker" && ill.Kind != "paused" { // expected when all workers have left, or when it's paused
				f.t.Errorf("a queue that is well: %v", ill)
			}
		}
	}
	must(f.t, doctor.Close())
	f.judge()
}

func (f *fleet) leaveNothing() {
	t := f.t
	for i, p := range f.peers {
		f.next(i)
		f.note("stop the worker")
		id := p.WorkerID()
		must(t, p.StopWorker(f.ctx))
		f.check(f.view(false).Working[id] == nil, "%s still holds something", id)
	}
	must(t, f.q.Resume(f.ctx))
	must(t, f.q.Delete(f.ctx))
	sure(f.q.DeleteAllFailed(f.ctx))(t)
	for _, k := range redistest.Keys(t, f.c, f.prefix) {
		ttl := sure(redis.Int(f.c.Do("TTL", k)))(t)
		most := 600
		if _, _, kind, _, _ := lane.Place(f.prefix+":", k); kind == "result" {
			most = 3600 // set by KeepResult
		}
		if k != f.prefix+":registry" && k != f.prefix+":protocol" && k != f.prefix+":token:{q}" && k != f.prefix+":failed:token:{q}" && (ttl == -1 || ttl > most) {
			t.Errorf("left behind: %s", k)
		}
	}
}

func (f *fleet) payload() string { return string(rune('a' + f.r.IntN(4))) }

// key returns one of a few keys, or sometimes any key under which a task waits or runs.
func (f *fleet) key() string {
	if f.r.IntN(4) == 0 {
		if key := f.anyKey(); key != "" {
			return key
		}
	}
	return string(rune('x' + f.r.IntN(3)))
}

// at returns a time that is unset, past or hours ahead, and the milliseconds that Redis gets.
func (f *fleet) at() (at time.Time, ms int64) {
	switch f.r.IntN(4) {
	case 0, 1:
		return time.Time{}, 0
	case 2:
		at = f.start.Add(-time.Duration(1+f.r.IntN(9)) * time.Minute)
	default:
		at = f.start.Add(time.Duration(3+f.r.IntN(9)) * time.Hour)
	}
	at = at.Truncate(time.Millisecond)
	if f.r.IntN(3) == 0 {
		return at.Add(-time.Microsecond), at.UnixMilli() // rounded up, so that it isn't too early
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
	f.called("enqueue", "payload…", some)
}

func (f *fleet) enqueueUnique() {
	p := f.payload()
	f.note("enqueue unique %s", p)
	_, there := f.view(false).Entry[store.UniqueEntry([]byte(p))]
	_, err := f.q.Add(f.ctx, worqr.TaskSpec{Payload: []byte(p), Unique: true})
	f.called("put", "payload", p)
	f.check(is_(err, worqr.ErrDuplicate) == there && (err != nil) == there, "unique %s, there %v: %v", p, there, err)
}

func (f *fleet) enqueueOnce() {
	p, nonce := f.payload(), fmt.Sprint(f.r.IntN(5))
	f.note("enqueue once %s %s", nonce, p)
	_, known := f.onces()[nonce]
	fresh := sure(f.q.EnqueueOnce(f.ctx, nonce, []byte(p)))(f.t)
	f.called("enqueue_once", "payload…", []string{p})
	_, now := f.onces()[nonce]
	f.check(fresh != known && now, "once %s, known %v, then %v: %v", nonce, known, now, fresh)
}

// onces returns the nonces that Redis has.
func (f *fleet) onces() map[string]bool {
	all := map[string]bool{}
	for _, key := range f.holds().Keys() {
		if _, _, kind, of, ok := lane.Place(f.prefix+":", key); ok && kind == "once" {
			all[of] = true
		}
	}
	return all
}

func (f *fleet) enqueueAt() {
	at, ms := f.at()
	if at.IsZero() {
		f.add()
		return
	}
	p := f.payload()
	key := sure(f.q.Add(f.ctx, worqr.TaskSpec{Payload: []byte(p), At: at}))(f.t)[0]
	f.note("enqueue %s at %d: %s", p, ms, key)
	f.called("put", "entry", "k:"+key, "payload", p, "at", ms, "when", "always", "keep", 0, "counts", 0)
}

func (f *fleet) put() {
	key, p := f.key(), f.payload()
	if f.r.IntN(3) == 0 {
		f.note("put %s %s", key, p)
		sure(f.q.Add(f.ctx, worqr.TaskSpec{Key: key, Payload: []byte(p)}))(f.t)
		f.called("put", "entry", "k:"+key, "payload", p, "at", 0, "when", "always", "keep", 0, "counts", 0)
		return
	}
	at, ms := f.at()
	when := f.r.IntN(4)
	o := worqr.TaskSpec{
		Key: key, Payload: []byte(p), At: at, KeepPayload: f.r.IntN(3) == 0, KeepCounts: f.r.IntN(2) == 0,
		Reschedule: []worqr.Reschedule{worqr.RescheduleAlways, worqr.RescheduleNever, worqr.RescheduleIfLater, worqr.RescheduleIfEarlier}[when],
	}
	f.note("put %s %s at %d, %+v", key, p, ms, o)
	sure(f.q.Add(f.ctx, o))(f.t)
	one := map[bool]int{true: 1}
	f.called("put", "entry", "k:"+key, "payload", p, "at", ms, "when", []string{"always", "never", "later", "earlier"}[when], "keep", one[o.KeepPayload], "counts", one[o.KeepCounts])
}

func (f *fleet) remove() {
	key := f.key()
	f.note("remove %s", key)
	there := waits(f.view(false), "k:"+key)
	removed := sure(f.q.RemoveKey(f.ctx, key))(f.t)
	f.check(removed == there, "removed %s, which waits: %v: %v", key, there, removed)
	f.check(f.called("remove", "entry", "k:"+key) == map[bool]int64{true: 1}[removed], "removed %s: %v", key, removed)
}

func (f *fleet) cancelKey() {
	key := f.key()
	f.note("cancel key %s", key)
	there := waits(f.view(false), "k:"+key)
	report := sure(f.q.CancelKey(f.ctx, key))(f.t)
	f.called("cancel_key", "entry", "k:"+key)
	f.check(report.Removed == map[bool]int{true: 1}[there], "canceled %s, which waits: %v: %d", key, there, report.Removed)
}

func (f *fleet) cancel() {
	p := f.payload()
	f.note("cancel %s", p)
	n := 0
	was := f.view(false)
	for _, o := range was.Waiting {
		n += map[bool]int{true: 1}[o == p]
	}
	for entry, e := range was.Entry { // added tasks are named by their keys
		n += map[bool]int{true: 1}[e["payload"] == p && was.Name(entry) == lane.Digest(p)]
	}
	report := sure(f.q.Cancel(f.ctx, []byte(p)))(f.t)
	f.called("cancel", "payload", p)
	f.check(report.Removed == n, "canceled %s: %d, want %d", p, report.Removed, n)
}

func (f *fleet) startTasks() {
	n := 1 + f.r.IntN(3)
	id := f.peers[f.i].WorkerID()
	was := f.view(false)
	tasks, err := f.q.StartTasks(f.ctx, n)
	if !is_(err, worqr.ErrNoTask) {
		must(f.t, err)
	}
	f.note("start %d: %q", n, slices.Collect(shorts(tasks)))
	f.check((len(tasks) == 0) == is_(err, worqr.ErrNoTask) && len(tasks) <= n, "%d tasks of %d: %v", len(tasks), n, err)
	asked := slices.ContainsFunc(f.made("step"), func(c call) bool { return c.Arg("worker") == id })
	f.check(asked, "it doesn't ask for tasks")
	eventually(f.t, "it holds only what it has started: what has expired fails in the next round", func() bool {
		return len(f.view(false).Working[id]) == len(was.Working[id])+len(tasks)
	})
	is, last := f.view(false), was.Token
	for _, task := range tasks {
		entry := is.Entries[task.AttemptID]
		key := keyOf(entry)
		tried, died := number(is.Entry[entry]["tried"]), number(is.Ledger[lane.Digest(string(task.Payload))])
		if key != "" {
			died = number(is.Entry[entry]["died"])
		}
		f.check(is.Owner[task.AttemptID] == id && is.Process[task.AttemptID] == string(task.Payload) && is.TokenOf(task.AttemptID) == task.Token && task.Token > last &&
			task.Key == key && task.Retries == tried && task.Crashes == died && task.Failure == nil, "started %+v, and %q, %d and %d are in Redis", task, entry, tried, died)
		f.hasProperties(is, task)
		last = task.Token
		f.held[task.AttemptID] = task
	}
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // "" is 0
	return n
}

// endings returns the outcomes of a process that a worker's rounds have carried.
func (f *fleet) endings(worker, process string) (all []string) {
	for _, c := range f.made("step") {
		for _, o := range store.RoundOf(c.Call).Outcomes {
			if c.Arg("worker") == worker && o.Process == process {
				all = append(all, fmt.Sprint(o.Verb, " ", o.Delay, " ", o.Kind, " ", o.Reason))
			}
		}
	}
	return all
}

func (f *fleet) endTask() {
	id := f.peers[f.i].WorkerID()
	was := f.view(false)
	held := slices.Sorted(maps.Keys(was.Working[id]))
	if len(held) == 0 {
		return
	}
	task := f.held[held[f.r.IntN(len(held))]]
	canceled := was.Covered(task.AttemptID, task.Token)
	called := fmt.Sprintf("%s %s (canceled %v)", task.AttemptID, short(string(task.Payload)), canceled)
	before := f.record(task.Key)
	var said string
	var end func() error
	switch f.r.IntN(8) {
	case 0, 1:
		f.note("finish %s", called)
		task.Result = []byte("of " + task.AttemptID)
		said, end = "finish 0s  ", func() error { return task.Finish(f.ctx) }
	case 2:
		f.note("stop %s", called)
		said, end = "stop 0s  ", func() error { return task.Stop(f.ctx) }
	case 3, 4, 5:
		var delay time.Duration
		if f.r.IntN(3) == 0 {
			delay = time.Duration(100+f.r.IntN(9)) * time.Hour
		}
		f.note("retry %s in %v", called, delay)
		said, end = fmt.Sprint("retry ", delay, "  "), func() error { return task.Retry(f.ctx, delay) }
	case 6:
		f.note("snooze %s", called)
		said, end = "snooze 0s  ", func() error { return task.Snooze(f.ctx, 0) }
	default:
		err, kind := errors.New("some-reason"), "failed"
		if f.r.IntN(2) == 0 {
			err, kind = worqr.Malformed(err), string(inspect.FailureMalformed)
		}
		f.note("fail %s: %s", called, kind)
		said, end = "fail 0s "+kind+" some-reason", func() error { return task.Fail(f.ctx, err) }
	}
	must(f.t, end())
	f.check(slices.Equal(f.endings(id, task.AttemptID), []string{said}), "it says %q of %s, want %q", f.endings(id, task.AttemptID), called, said)
	switch f.r.IntN(8) {
	case 0:
		must(f.t, end()) // again
	case 1:
		if err := task.Retry(f.ctx, 0); err != nil && !is_(err, worqr.ErrNotOwner) {
			f.t.Errorf("after its end: %v", err)
		}
	}
	verb, _, _ := strings.Cut(said, " ")
	f.hasResult(was, before, task, verb, canceled)
	_, still := f.view(false).Owner[task.AttemptID]
	f.check(!still, "%s is still held", called)
	delete(f.held, task.AttemptID)
}

func (f *fleet) failWorker() {
	t, victim := f.t, f.r.IntN(len(f.peers))
	old := f.peers[victim].WorkerID()
	f.note("fail worker %d, %s", victim, old)
	was := f.view(false)
	n := sure(f.peers[f.i].FailWorker(f.ctx, old))(t)
	returned := 0
	for id, token := range was.Working[old] {
		returned += map[bool]int{false: 1}[was.Covered(id, token)]
	}
	f.check(n == returned, "returned %d, want %d", n, returned)
	for id := range was.Working[old] { // its ends have no effect
		task := f.held[id]
		delete(f.held, id)
		for _, end := range []func() error{
			func() error { return task.Finish(f.ctx) },
			func() error { return task.Retry(f.ctx, 0) },
			func() error { return task.Fail(f.ctx, errors.New("late")) },
		} {
			if err := end(); !is_(err, worqr.ErrNotOwner) {
				t.Errorf("an end by a failed worker: %v", err)
			}
		}
	}
	if len(was.Working[old]) == 0 { // it may not know yet
		if _, err := f.queues[victim].StartTask(f.ctx); !is_(err, worqr.ErrEvicted) && !is_(err, worqr.ErrNotWorking) {
			t.Errorf("start by a failed worker: %v", err)
		}
	}
	eventually(t, "it is back", func() bool {
		return f.peers[victim].WorkerID() != old && f.queues[victim].StartWork(f.ctx) == nil
	})
	is := f.view(false)
	_, member := is.Workers[old]
	f.check(!member && is.Working[old] == nil, "%s is still there", old)
	f.note("it is back as %s", f.peers[victim].WorkerID())
}

func (f *fleet) stopWork() {
	f.note("stop work and start again")
	id := f.peers[f.i].WorkerID()
	for process := range f.view(false).Working[id] {
		delete(f.held, process)
	}
	must(f.t, f.q.StopWork(f.ctx))
	_, member := f.view(false).Workers[id]
	f.check(!member && f.view(false).Working[id] == nil, "%s is still there", id)
	must(f.t, f.q.StartWork(f.ctx))
}

func (f *fleet) delete() {
	f.note("delete")
	must(f.t, f.q.Delete(f.ctx))
	is := f.view(false)
	f.check(len(is.Waiting)+len(is.Schedule)+len(is.Contents)+len(is.Ledger)+len(is.Added) == 0, "something is left: %+v", is)
}

func (f *fleet) pause() {
	f.note("pause or resume")
	paused := f.view(false).Paused
	if paused {
		must(f.t, f.q.Resume(f.ctx))
	} else {
		must(f.t, f.q.Pause(f.ctx))
	}
	f.check(f.view(false).Paused != paused, "it is still paused: %v", paused)
}

// someFailed returns the ids of some failed tasks, or nil for all, and which of them exist.
func (f *fleet) someFailed() (ids []string, there map[string]bool) {
	all := slices.Sorted(maps.Keys(f.view(true).Schedule))
	there = map[string]bool{}
	if len(all) > 0 && f.r.IntN(2) == 0 {
		for range 1 + f.r.IntN(3)/2 {
			id := all[f.r.IntN(len(all))][2:]
			ids, there[id] = append(ids, id), true
		}
		if f.r.IntN(3) == 0 {
			ids = append(ids, "nobody")
		}
		return ids, there
	}
	for _, e := range all {
		there[e[2:]] = true
	}
	return nil, there
}

func (f *fleet) requeueFailed() {
	ids, there := f.someFailed()
	f.note("requeue failed %s", ids)
	requeue := func() (int, error) { return f.q.RequeueFailed(f.ctx, ids...) }
	if len(ids) == 0 {
		requeue = func() (int, error) { return f.q.RequeueAllFailed(f.ctx) }
	}
	f.failedGo("requeued", there, requeue, func(failedTask lane.Hash, was *lane.Lane) bool {
		_, taken := was.Entry[failedTask["from"]]
		return !taken
	})
}

func (f *fleet) deleteFailed() {
	ids, there := f.someFailed()
	f.note("delete failed %s", ids)
	drop := func() (int, error) { return f.q.DeleteFailed(f.ctx, ids...) }
	if len(ids) == 0 {
		drop = func() (int, error) { return f.q.DeleteAllFailed(f.ctx) }
	}
	f.failedGo("deleted", there, drop, func(lane.Hash, *lane.Lane) bool { return true })
}

// failedGo checks that do removes exactly the failed tasks that it may remove, and returns how
// many. If several have the same key, only one goes.
func (f *fleet) failedGo(how string, ids map[string]bool, do func() (int, error), may func(failedTask lane.Hash, was *lane.Lane) bool) {
	was, failedQueue := f.view(false), f.view(true)
	n := sure(do())(f.t)
	is, gone := f.view(true), 0
	for e, failedTask := range failedQueue.Entry {
		_, still := is.Entry[e]
		if !still {
			gone++
		}
		f.check(still || ids[e[2:]] && may(failedTask, was), "%s: %s, which may not", how, e)
		f.check(!still || !ids[e[2:]] || how == "requeued" && failedTask["from"] != "", "not %s: %s", how, e)
	}
	f.check(n == gone, "%s %d, and %d are gone", how, n, gone)
}

// readouts compares what the library returns about the queue with what is in Redis.
func (f *fleet) readouts() {
	t, q := f.t, f.q
	t.Helper()
	is, failedQueue, now := f.view(false), f.view(true), f.redisTime()
	var due, later []string
	var planned, told []string
	for _, e := range order(is) {
		fields := is.Entry[e]
		if is.Schedule[e] <= now {
			due = append(due, fields["payload"])
		} else {
			later = append(later, fields["payload"])
		}
		planned = append(planned, fmt.Sprintln(keyOf(e), fields["payload"], fields["retries"], fields["crashes"]))
		told = append(told, fields["due"])
	}
	for _, p := range slices.Backward(is.Waiting) {
		due = append(due, p)
	}
	for _, w := range is.Waiters() {
		due = append(due, payloadOf(is, w))
	}
	f.same("Tasks", waiting(t, q), slices.Concat(due, later))
	want := inspect.QueueStats{Waiting: len(is.Waiting) + len(is.Added), Failed: len(failedQueue.Schedule), Workers: len(is.Workers), Paused: is.Paused, Running: len(is.Process), Scheduled: len(is.Contents)}
	stats := sure(q.Stats(f.ctx))(t)
	stats.Oldest = 0 // how long it took to get here
	want.Tokens = int64(is.Token)
	f.check(stats == want, "%+v, want %+v", stats, want)
	var scheduled []string
	for s := range each(t, q.Scheduled(f.ctx)) {
		i := len(scheduled)
		scheduled = append(scheduled, fmt.Sprintln(s.Key, string(s.Payload), s.Retries, s.Crashes))
		ms := s.DueAt.UnixMilli()
		f.check(i >= len(told) || fmt.Sprint(ms) == told[i] || len(told[i]) < 13 && ms >= now, "%s is due at %d, want %s", short(string(s.Payload)), ms, told[i:]) // returned to the front: due now
	}
	f.same("Scheduled", scheduled, planned)
	f.addedOut(is)
	f.failedOut(failedQueue)
}

// order returns the entries of the schedule in the order in which they are due.
func order(l *lane.Lane) []string {
	return slices.SortedFunc(maps.Keys(l.Schedule), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.Schedule[a], l.Schedule[b]), cmp.Compare(a, b))
	})
}

// failedOut compares the failed tasks, latest first.
func (f *fleet) failedOut(failedQueue *lane.Lane) {
	t, q := f.t, f.q
	t.Helper()
	var failed, dead []string
	for s := range each(t, q.Failed(f.ctx)) {
		failed = append(failed, fmt.Sprintln(s.ID, s.Key, string(s.Payload), s.Kind, s.Error, s.Retries, s.Crashes, s.WorkerID, s.FailedAt.UnixMilli()))
	}
	for _, e := range slices.Backward(order(failedQueue)) {
		g := failedQueue.Entry[e]
		dead = append(dead, fmt.Sprintln(e[2:], store.KeyOf(g["from"]), g["payload"], g["kind"], g["reason"], g["tries"], g["deaths"], g["worker"], g["at"]))
	}
	f.same("Failed", failed, dead)
}

func (f *fleet) redisTime() int64 {
	now := sure(redis.Int64s(f.c.Do("TIME")))(f.t)
	return now[0]*1000 + now[1]/1000
}

func (f *fleet) same(what string, got, want []string) {
	f.t.Helper()
	f.check(slices.Equal(got, want), "%s: %q, want %q", what, got, want)
}

// cancels checks that the contexts of canceled tasks end, and no others. Once no canceled task runs
// and the holders have acknowledged the cancel, nothing may be left of it.
func (f *fleet) cancels() {
	t := f.t
	t.Helper()
	is := f.view(false)
	for id, task := range f.held {
		if !is.Covered(id, task.Token) {
			f.check(task.Context().Err() == nil, "%s %s: %v", id, task.Payload, context.Cause(task.Context()))
			continue
		}
		select {
		case <-task.Context().Done():
			cause := context.Cause(task.Context())
			f.check(is_(cause, worqr.ErrCanceled), "%s %s: %v", id, task.Payload, cause)
		case <-time.After(patience):
			t.Errorf("%s %s is not canceled", id, task.Payload)
		}
	}
	eventually(t, "the cancel log is in order", func() bool {
		is := f.view(false)
		for name, token := range is.Canceled {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(is.Process)), func(id string) bool {
				return is.TokenOf(id) <= token && slices.Contains(is.Names(id), name)
			}) {
				return false
			}
		}
		return true
	})
}
