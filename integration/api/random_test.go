package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/integration/lane"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// TestRandom makes random calls on a queue from three peers. What they return, and what the queue then holds, must be
// what a plain model says; and in Redis, no invariant may be broken.
func TestRandom(t *testing.T) {
	eachSeed(t, 1, func(t *testing.T, seed uint64) {
		random(t, rand.NewPCG(seed, 0), 250, fmt.Sprintf("-run TestRandom -random.seed %d -random.seeds 1", seed))
	})
}

// FuzzRandom lets the fuzzer choose the calls: each choice consumes a byte.
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

// A fleet is three peers of a queue, and the model of it.
type fleet struct {
	*testing.T
	*model
	r      *rand.Rand
	c      redis.Conn
	prefix string
	peers  []*worqr.Peer
	queues []*worqr.Queue
	lanes  map[bool]*lane.Lane // what Redis held after the last call; true is the failed queue
	log    []string

	peer int // of the current call
	q    *worqr.Queue
}

func random(t *testing.T, choices rand.Source, steps int, repeat string) {
	f := &fleet{T: t, r: rand.New(choices), c: redistest.Conn(t), prefix: redistest.Prefix(t), lanes: map[bool]*lane.Lane{}}
	for range 3 {
		p := open(t, worqr.Options{Prefix: f.prefix, Lease: time.Hour})
		f.peers, f.queues = append(f.peers, p), append(f.queues, working(t, p, "q"))
	}
	f.model = newModel(f.now())
	defer func() {
		if t.Failed() {
			t.Logf("to repeat it: %s; what was done:\n%s", repeat, strings.Join(f.log, "\n"))
		}
	}()
	for range steps {
		f.peer = f.r.IntN(len(f.peers))
		f.q = f.queues[f.peer]
		f.step()
		f.compare()
		f.invariants()
		if t.Failed() {
			return
		}
	}
	f.leaveNothing()
}

// randomCalls are the random calls and how often each is chosen.
var randomCalls = []struct {
	weight int
	do     func(*fleet)
}{
	{8, (*fleet).enqueue}, {2, (*fleet).enqueueOnce}, {6, (*fleet).addUnique}, {20, (*fleet).addKey}, {14, (*fleet).addMany},
	{24, (*fleet).startTasks}, {30, (*fleet).endTask}, {6, (*fleet).failWorker}, {2, (*fleet).stopWork},
	{3, (*fleet).cancel}, {3, (*fleet).cancelKey}, {2, (*fleet).removeKey}, {1, (*fleet).deleteAll}, {2, (*fleet).pause},
	{5, (*fleet).requeueFailed}, {1, (*fleet).deleteFailed},
}

func (f *fleet) step() {
	if f.paused && f.r.IntN(8) == 0 {
		f.pause() // so that it isn't paused for long
		return
	}
	sum := 0
	for _, call := range randomCalls {
		sum += call.weight
	}
	n := f.r.IntN(sum)
	for _, call := range randomCalls {
		if n -= call.weight; n < 0 {
			call.do(f)
			return
		}
	}
}

func (f *fleet) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf("%d: ", f.peer)+fmt.Sprintf(format, args...))
}

// same checks what a call has returned.
func (f *fleet) same(what string, got, want any) {
	f.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("%s: %v, want %v", what, got, want)
	}
}

// now returns Redis's time in ms.
func (f *fleet) now() int64 {
	now := sure(redis.Int64s(f.c.Do("TIME")))(f.T)
	return now[0]*1000 + now[1]/1000
}

func (f *fleet) letter(first rune, n int) string { return string(first + rune(f.r.IntN(n))) }
func (f *fleet) chance(n int) bool               { return f.r.IntN(n) == 0 }
func (f *fleet) payload() string                 { return f.letter('a', 4) }

// key returns one of a few keys, or any under which a task waits or runs.
func (f *fleet) key() string {
	if f.chance(4) {
		var all []string
		for name := range f.named {
			if hasKey(name) {
				all = append(all, store.KeyOf(name))
			}
		}
		if slices.Sort(all); len(all) > 0 {
			return all[f.r.IntN(len(all))]
		}
	}
	return f.letter('x', 3)
}

func (f *fleet) enqueue() {
	var some []string
	for range 1 + f.r.IntN(3) {
		some = append(some, f.payload())
	}
	f.note("enqueue %s", some)
	enqueue(f, f.q, some...)
	f.list = append(f.list, some...)
}

func (f *fleet) enqueueOnce() {
	p, nonce := f.payload(), f.letter('0', 5)
	f.note("enqueue once %s %s", nonce, p)
	f.same("fresh", sure(f.q.EnqueueOnce(f.Context(), nonce, []byte(p)))(f), !f.nonces[nonce])
	if !f.nonces[nonce] {
		f.list, f.nonces[nonce] = append(f.list, p), true
	}
}

func (f *fleet) addUnique() {
	p := f.payload()
	f.note("add unique %s", p)
	_, err := f.q.Add(f.Context(), worqr.TaskSpec{Payload: []byte(p), Unique: true})
	f.same("duplicate", is_(err, worqr.ErrDuplicate), f.named["u:"+p] != nil)
	if err == nil {
		f.add("u:"+p, put{content: content{payload: p}})
	}
}

// some returns a random task, and what the model puts for it.
func (f *fleet) some() (s worqr.TaskSpec, p put) {
	p.payload = f.payload()
	if f.chance(8) {
		p.payload = strings.Repeat(p.payload, 17<<10)
	}
	s.Payload = []byte(p.payload)
	start := time.UnixMilli(f.begin)
	switch f.r.IntN(4) {
	case 0:
		s.At = start.Add(-time.Duration(1+f.r.IntN(9)) * time.Minute)
	case 1:
		s.At = start.Add(time.Duration(3+f.r.IntN(9)) * time.Hour)
		p.at = s.At.UnixMilli()
	}
	switch f.r.IntN(12) {
	case 0:
		s.Expires, p.expired = start.Add(-time.Minute), true
	case 1, 2:
		s.Expires = start.Add(time.Duration(100+f.r.IntN(9)) * time.Hour)
	}
	if f.chance(3) {
		s.Headers = map[string]string{"of": f.payload()}
		p.headers = s.Headers
	}
	if p.keeps = f.chance(2); p.keeps {
		s.KeepResult = time.Hour
	}
	return s, p
}

// short describes a task that's added.
func (p put) short() string {
	return fmt.Sprintf("%.3s (%d) at %d %v expired %v keeps %v, %d %v %v", p.payload, len(p.payload), p.at, p.headers, p.expired, p.keeps, p.rule, p.keep, p.counts)
}

func (f *fleet) addKey() {
	s, p := f.some()
	s.Key = f.key()
	if !f.chance(3) {
		s.KeepPayload, s.KeepCounts, s.Reschedule = f.chance(3), f.chance(2), worqr.Reschedule(f.r.IntN(4))
	}
	p.rule, p.keep, p.counts = s.Reschedule, s.KeepPayload, s.KeepPayload || s.KeepCounts
	f.note("add %s: %s", s.Key, p.short())
	f.same("key", sure(f.q.Add(f.Context(), s))(f), []string{s.Key})
	f.add("k:"+s.Key, p)
}

func (f *fleet) addMany() {
	var specs []worqr.TaskSpec
	var puts []put
	for range 1 + f.r.IntN(3) {
		s, p := f.some()
		specs, puts = append(specs, s), append(puts, p)
	}
	for i, key := range sure(f.q.Add(f.Context(), specs...))(f) {
		f.note("add: %s; the key is %s", puts[i].short(), key)
		f.add("k:"+key, puts[i])
	}
}

func (f *fleet) startTasks() {
	n := 1 + f.r.IntN(3)
	token := sure(f.q.Stats(f.Context()))(f).Tokens
	tasks, err := f.q.StartTasks(f.Context(), n)
	f.note("start %d of token %d: %d, %v", n, token, len(tasks), err)
	want := f.start(f.peer, n, token)
	var is, should []string
	for _, t := range tasks {
		is = append(is, fmt.Sprintf("%.9s key %q token %d retries %d crashes %d %v", t.Payload, t.Key, t.Token, t.Retries, t.Crashes, t.Headers))
	}
	for i, h := range want {
		should = append(should, fmt.Sprintf("%.9s key %q token %d retries %d crashes %d %v", h.payload, store.KeyOf(h.name), h.token, h.retries, h.crashes, h.headers))
		if i < len(tasks) {
			h.task = tasks[i]
		}
	}
	f.same("started", strings.Join(is, "; "), strings.Join(should, "; "))
	f.same("no task", is_(err, worqr.ErrNoTask), len(want) == 0)
	if f.Failed() {
		f.FailNow()
	}
}

func (f *fleet) endTask() {
	all := f.heldBy(f.peer)
	if len(all) == 0 {
		return
	}
	h := all[f.r.IntN(len(all))]
	ctx, delay := f.Context(), time.Duration(0)
	if f.chance(3) {
		delay = time.Duration(100+f.r.IntN(500)) * time.Hour
	}
	at := int64(1) // now, which isn't in front
	if delay > 0 {
		at = f.now() + delay.Milliseconds()
	}
	verb, text := "Finish", ""
	var do func() error
	switch f.r.IntN(8) {
	case 0, 1:
		text = "of " + h.task.AttemptID
		h.task.Result = []byte(text)
		do = func() error { return h.task.Finish(ctx) }
	case 2:
		verb, do = "Stop", func() error { return h.task.Stop(ctx) }
	case 3, 4, 5:
		verb, do = "Retry", func() error { return h.task.Retry(ctx, delay) }
	case 6:
		verb, do = "Snooze", func() error { return h.task.Snooze(ctx, delay) }
	default:
		err := errors.New("some-reason")
		verb, text = string(inspect.FailureError), err.Error()
		if f.chance(2) {
			err, verb = worqr.Malformed(err), string(inspect.FailureMalformed)
		}
		do = func() error { return h.task.Fail(ctx, err) }
	}
	f.note("%s %s %.3s in %v (canceled %v)", verb, h.task.AttemptID, h.payload, delay, h.canceled)
	must(f, do())
	if f.chance(4) {
		must(f, do()) // again
	}
	f.end(h, verb, at, text)
}

func (f *fleet) failWorker() {
	victim := f.r.IntN(len(f.peers))
	old, lost := f.peers[victim].WorkerID(), f.heldBy(victim)
	f.note("fail worker %d, %s", victim, old)
	n := sure(f.peers[f.peer].FailWorker(f.Context(), old))(f)
	f.same("returned", n, f.leave(victim, true))
	for _, h := range lost { // its ends have no effect
		if err := h.task.Finish(f.Context()); !is_(err, worqr.ErrNotOwner) {
			f.Errorf("an end by a failed worker: %v", err)
		}
	}
	if len(lost) == 0 { // it may not know yet
		if _, err := f.queues[victim].StartTask(f.Context()); !is_(err, worqr.ErrEvicted) && !is_(err, worqr.ErrNotWorking) {
			f.Errorf("start by a failed worker: %v", err)
		}
	}
	eventually(f, "it is back", func() bool {
		return f.peers[victim].WorkerID() != old && f.queues[victim].StartWork(f.Context()) == nil
	})
}

func (f *fleet) stopWork() {
	f.note("stop work and start again")
	must(f, f.q.StopWork(f.Context()))
	f.leave(f.peer, false)
	must(f, f.q.StartWork(f.Context()))
}

func (f *fleet) cancel() {
	p := f.payload()
	f.note("cancel %s", p)
	f.same("removed", sure(f.q.Cancel(f.Context(), []byte(p)))(f).Removed, f.model.cancel(p))
}

func (f *fleet) cancelKey() {
	key := f.key()
	f.note("cancel key %s", key)
	f.same("removed", sure(f.q.CancelKey(f.Context(), key))(f).Removed == 1, f.remove(key, "canceled"))
}

func (f *fleet) removeKey() {
	key := f.key()
	f.note("remove %s", key)
	f.same("removed", sure(f.q.RemoveKey(f.Context(), key))(f), f.remove(key, "removed"))
}

func (f *fleet) deleteAll() {
	f.note("delete")
	must(f, f.q.Delete(f.Context()))
	f.delete()
}

func (f *fleet) pause() {
	f.note("pause or resume")
	if f.paused = !f.paused; f.paused {
		must(f, f.q.Pause(f.Context()))
	} else {
		must(f, f.q.Resume(f.Context()))
	}
}

func (f *fleet) requeueFailed() {
	f.someFailed("requeue", f.q.RequeueFailed, f.q.RequeueAllFailed, f.requeue)
}

func (f *fleet) deleteFailed() {
	f.someFailed("delete", f.q.DeleteFailed, f.q.DeleteAllFailed, func(*deadTask) bool { return true })
}

// someFailed takes one or all failed tasks away, the newest first. The model says which of them may go.
func (f *fleet) someFailed(how string, some func(context.Context, ...string) (int, error), all func(context.Context) (int, error), may func(*deadTask) bool) {
	these, n := slices.Clone(f.failed), 0
	if len(these) > 0 && f.chance(2) {
		i := f.r.IntN(len(these))
		id := failed(f, f.q)[len(these)-1-i].ID
		these = these[i : i+1]
		f.note("%s %s", how, id)
		n = sure(some(f.Context(), id, "nobody"))(f)
	} else {
		f.note("%s all failed", how)
		n = sure(all(f.Context()))(f)
	}
	for _, d := range slices.Backward(these) {
		if may(d) {
			n--
			f.failed = slices.DeleteFunc(f.failed, func(o *deadTask) bool { return o == d })
		}
	}
	f.same(how+": more than should", n, 0)
}

// compare compares all that the library says about the queue with the model. What fails without a handler does so a
// little later.
func (f *fleet) compare() {
	is, should := f.said(), f.lines()
	for deadline := time.Now().Add(patience); !slices.Equal(is, should) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		is = f.said() // poll
	}
	for i := range max(len(is), len(should)) {
		if i >= len(is) || i >= len(should) || is[i] != should[i] {
			f.Errorf("the library says %.100q\nthe model says %.100q", is[min(i, len(is)):], should[min(i, len(should)):])
			break
		}
	}
	for _, h := range f.held {
		ctx := h.task.Context()
		if h.canceled {
			eventually(f, "it's canceled", func() bool { return is_(context.Cause(ctx), worqr.ErrCanceled) })
		} else if ctx.Err() != nil {
			f.Errorf("%s %.9s: %v", h.task.AttemptID, h.payload, context.Cause(ctx))
		}
	}
	f.sameResult()
}

// said returns what the library says, as lines does.
func (f *fleet) said() (all []string) {
	q, ctx := f.q, f.Context()
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for p := range each(f, q.Tasks(ctx)) {
		add("list %s", p)
	}
	behind := map[string]string{}
	for t := range each(f, q.Named(ctx)) {
		line := fmt.Sprintf("%s key %q %v retries %d crashes %d %s", t.State, t.Key, t.Headers, t.Retries, t.Crashes, t.Payload)
		if t.State == inspect.NamedBlocked {
			behind[t.Key] = line
		} else {
			all = append(all, line)
		}
	}
	running := map[int64]string{}
	for r := range each(f, q.Running(ctx)) {
		running[r.Token] = fmt.Sprintf("running %s token %d key %q %v retries %d %s", r.AttemptID, r.Token, r.Key, r.Headers, r.Retries, r.Payload)
	}
	for _, key := range slices.Sorted(maps.Keys(behind)) {
		all = append(all, behind[key])
	}
	for _, token := range slices.Sorted(maps.Keys(running)) {
		all = append(all, running[token])
	}
	for _, t := range failed(f, q) {
		add("failed key %q %s %q %v retries %d crashes %d %s", t.Key, t.Kind, t.Error, t.Headers, t.Retries, t.Crashes, t.Payload)
	}
	s := stats(f, q)
	f.same("workers", s.Workers, len(f.peers))
	add("waiting %d scheduled %d running %d failed %d paused %v", s.Waiting, s.Scheduled, s.Running, s.Failed, s.Paused)
	return all
}

// sameResult compares the result of one key.
func (f *fleet) sameResult() {
	key := f.key()
	want, ended := f.results[key]
	got, err := f.q.Result(f.Context(), key)
	switch {
	case ended && err == nil:
		f.same("result of "+key, fmt.Sprintf("%s %q", got.Outcome, cmp.Or(string(got.Value), got.Error)), want)
	case f.named["k:"+key] != nil:
		f.same(key+" hasn't ended", is_(err, worqr.ErrNotEnded) && !ended, true)
	default:
		f.same(key+" has no result", is_(err, worqr.ErrNoResult) && !ended, true)
	}
}

// dump returns all keys of a prefix, and what they hold.
const dump = `
local all = {}
local READ = { list = { 'LRANGE', 0, -1 }, zset = { 'ZRANGE', 0, -1, 'WITHSCORES' }, hash = { 'HGETALL' }, set = { 'SMEMBERS' }, string = { 'GET' } }
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local held = redis.call(READ[kind][1], key, unpack(READ[kind], 2))
  all[#all + 1] = { key, kind, type(held) == 'table' and held or { held } }
end
return all`

// invariants judges what Redis holds.
func (f *fleet) invariants() {
	lanes := map[bool]*lane.Lane{false: lane.New("q", false), true: lane.New("q", true)}
	for _, one := range sure(redis.Values(f.c.Do("EVAL", dump, 0, f.prefix+":*")))(f) {
		parts := one.([]any)
		held := sure(redis.Strings(parts[2], nil))(f)
		_, failed, kind, of, ok := lane.Place(f.prefix+":", string(parts[0].([]byte)))
		if !ok {
			continue
		}
		var value any = held[0]
		switch string(parts[1].([]byte)) {
		case "list":
			value = held
		case "hash":
			value = pairs(held, func(v string) string { return v }, lane.Hash{})
		case "zset":
			value = pairs(held, lane.Number, lane.ZSet{})
		}
		lanes[failed].Set(kind, of, value)
	}
	for failed, is := range lanes {
		is.Flaws(f.now(), f.Errorf)
		if was := f.lanes[failed]; was != nil {
			is.Given = was.Given
			began, _ := is.Since(was)
			lane.Tokens(was, is, began, f.Errorf)
			lane.Marks(was, is, f.Errorf)
		}
	}
	f.lanes = lanes
}

// pairs puts names and values that follow each other into a map.
func pairs[M ~map[string]V, V any](held []string, read func(string) V, into M) M {
	for i := 0; i < len(held); i += 2 {
		into[held[i]] = read(held[i+1])
	}
	return into
}

func (f *fleet) leaveNothing() {
	must(f, f.q.Resume(f.Context()))
	doctor := openDoctor(f, redistest.URL(), worqr.Options{Prefix: f.prefix})
	for _, ill := range ills(sure(doctor.Check(f.Context(), nil))(f)) {
		f.Errorf("a queue that is well: %v", ill)
	}
	must(f, doctor.Close())
	for _, p := range f.peers {
		must(f, p.StopWorker(f.Context()))
	}
	must(f, f.q.Delete(f.Context()))
	sure(f.q.DeleteAllFailed(f.Context()))(f)
	for _, key := range redistest.Keys(f, f.c, f.prefix) {
		_, _, kind, _, _ := lane.Place(f.prefix+":", key)
		if lasts := sure(redis.Int(f.c.Do("TTL", key)))(f) == -1; lasts && kind != "state" && key != f.prefix+":registry" && key != f.prefix+":protocol" {
			f.Errorf("left behind: %s", key)
		}
	}
}
