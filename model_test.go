package worqr_test

import (
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

// A model is what a queue should be: the verbs on a handful of slices.
type model struct {
	waiting []string // front first
	held    map[string][]held1
	locks   map[string]lock // payload → which copy has it
	next    int             // number of the next copy
	copies  []int           // of waiting, the number of each copy
	paused  bool
}

// held1 is a task that a worker holds.
type held1 struct {
	payload  string
	copy     int
	task     *worqr.Task
	canceled bool
}

// lock is the copy that was enqueued as unique.
type lock struct{ copy int }

func (m *model) push(payload string) int {
	m.waiting = append(m.waiting, payload)
	m.copies = append(m.copies, m.next)
	m.next++
	return m.next - 1
}

// back puts tasks to the front; the last of hs was started last.
func (m *model) back(hs []held1) {
	var ps []string
	var cs []int
	for _, h := range hs {
		if h.canceled {
			m.end(h)
			continue
		}
		ps, cs = append(ps, h.payload), append(cs, h.copy)
	}
	m.waiting = append(ps, m.waiting...)
	m.copies = append(cs, m.copies...)
}

// end is the end of a copy for good.
func (m *model) end(h held1) {
	if l, ok := m.locks[h.payload]; ok && l.copy == h.copy {
		delete(m.locks, h.payload)
	}
}

// TestModel does random things to a queue from three peers, and after each
// compares all that is in Redis with a model, and checks the invariants.
func TestModel(t *testing.T) {
	t.Parallel()
	for run := range 8 {
		seed := uint64(time.Now().UnixNano()) + uint64(run)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			modelRun(t, rand.New(rand.NewPCG(seed, 0)), 250)
		})
	}
}

// FuzzModel lets the fuzzer choose what is done.
func FuzzModel(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, uint16(50))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		modelRun(t, rand.New(rand.NewPCG(seed, 1)), int(steps%300))
	})
}

type fleet struct {
	t      testing.TB
	prefix string
	c      redis.Conn
	peers  []*worqr.Peer
	queues []*worqr.Queue
	ids    []string // of the present incarnations; "" when not working
	m      *model
	log    []string
}

func modelRun(t *testing.T, r *rand.Rand, steps int) {
	f := &fleet{t: t, prefix: redistest.Prefix(t), c: redistest.Conn(t), m: &model{held: map[string][]held1{}, locks: map[string]lock{}}}
	for range 3 {
		p := open(t, worqr.Options{Prefix: f.prefix, Lease: time.Hour})
		f.peers = append(f.peers, p)
		f.queues = append(f.queues, working(t, p, "q"))
		f.ids = append(f.ids, p.ID())
	}
	defer func() {
		if t.Failed() {
			t.Log("what was done:\n" + strings.Join(f.log, "\n"))
		}
	}()
	for range steps {
		f.step(r)
		f.compare()
		if t.Failed() {
			return
		}
	}
	for i, p := range f.peers { // and leave nothing
		if f.ids[i] != "" {
			must(t, p.StopWorker(t.Context()))
			f.m.back(f.m.held[f.ids[i]])
			delete(f.m.held, f.ids[i])
		}
		f.ids[i] = ""
	}
	f.compare()
	must(t, f.queues[0].Resume(t.Context()))
	must(t, f.queues[0].Delete(t.Context()))
	for _, k := range redistest.Keys(t, f.c, f.prefix) {
		ttl, err := redis.Int(f.c.Do("TTL", k))
		must(t, err)
		if k != f.prefix+":registry" && k != f.prefix+":token:{q}" && (ttl <= 0 || ttl > 600) {
			t.Errorf("left behind: %s", k)
		}
	}
}

func (f *fleet) step(r *rand.Rand) {
	t, m := f.t, f.m
	t.Helper()
	ctx := t.Context()
	i := r.IntN(len(f.peers))
	q, id := f.queues[i], f.ids[i]
	payload := string(rune('a' + r.IntN(4)))
	var held []held1
	if id != "" {
		held = m.held[id]
	}
	note := func(format string, args ...any) {
		f.log = append(f.log, fmt.Sprintf("%d: ", i)+fmt.Sprintf(format, args...))
	}
	switch op := r.IntN(100); {
	case op < 20:
		n := 1 + r.IntN(3)
		var ps [][]byte
		for j := range n {
			p := string(rune('a' + (int(payload[0]-'a')+j)%4))
			ps = append(ps, []byte(p))
			m.push(p)
		}
		note("enqueue %s", ps)
		must(t, q.Enqueue(ctx, ps...))
	case op < 28:
		note("enqueue unique %s", payload)
		err := q.EnqueueUnique(ctx, []byte(payload))
		if _, locked := m.locks[payload]; locked != is_(err, worqr.ErrDuplicate) {
			t.Errorf("EnqueueUnique: %v, locked %v", err, locked)
		}
		if _, locked := m.locks[payload]; !locked {
			must(t, err)
			m.locks[payload] = lock{m.push(payload)}
		}
	case op < 30:
		nonce := fmt.Sprint(r.IntN(5))
		note("enqueue once %s", nonce)
		fresh, err := q.EnqueueOnce(ctx, nonce, []byte(payload))
		must(t, err)
		if fresh {
			m.push(payload)
		}
	case op < 55 && id != "":
		n := 1 + r.IntN(3)
		note("start %d", n)
		tasks, err := q.StartTasks(ctx, n)
		want := min(n, len(m.waiting))
		if m.paused {
			want = 0
		}
		if want == 0 {
			if !is_(err, worqr.ErrNoTask) {
				t.Errorf("start: %v, want ErrNoTask", err)
			}
			return
		}
		must(t, err)
		if !slices.Equal(payloads(tasks), m.waiting[:want]) {
			t.Errorf("started %q, want %q", payloads(tasks), m.waiting[:want])
			return
		}
		for j, task := range tasks {
			held = append(held, held1{payload: m.waiting[j], copy: m.copies[j], task: task})
		}
		m.held[id] = held
		m.waiting, m.copies = m.waiting[want:], m.copies[want:]
	case op < 70 && len(held) > 0:
		j := r.IntN(len(held))
		h := held[j]
		note("finish %s (canceled %v)", h.payload, h.canceled)
		must(t, h.task.Finish(ctx))
		if r.IntN(4) == 0 {
			must(t, h.task.Finish(ctx)) // again
		}
		m.end(h)
		m.held[id] = slices.Delete(slices.Clone(held), j, j+1)
	case op < 80 && len(held) > 0:
		j := r.IntN(len(held))
		h := held[j]
		note("stop %s (canceled %v)", h.payload, h.canceled)
		must(t, h.task.Stop(ctx))
		m.held[id] = slices.Delete(slices.Clone(held), j, j+1)
		m.back([]held1{h})
	case op < 86:
		note("cancel %s", payload)
		report, err := q.Cancel(ctx, []byte(payload))
		must(t, err)
		removed := 0
		for j := len(m.waiting) - 1; j >= 0; j-- {
			if m.waiting[j] == payload {
				if l, ok := m.locks[payload]; ok && l.copy == m.copies[j] {
					delete(m.locks, payload)
				}
				m.waiting = slices.Delete(slices.Clone(m.waiting), j, j+1)
				m.copies = slices.Delete(slices.Clone(m.copies), j, j+1)
				removed++
			}
		}
		if report.Removed != removed {
			t.Errorf("canceled %d, want %d", report.Removed, removed)
		}
		for id, hs := range m.held {
			for j := range hs {
				if hs[j].payload == payload {
					m.held[id][j].canceled = true
				}
			}
		}
	case op < 89:
		note("fail")
		victim := r.IntN(len(f.peers))
		if f.ids[victim] == "" {
			return
		}
		old := m.held[f.ids[victim]]
		want := 0
		for _, h := range old {
			if !h.canceled {
				want++
			}
		}
		n, err := f.peers[i].FailWorker(ctx, f.ids[victim])
		must(t, err)
		if n != want {
			t.Errorf("FailWorker returned %d, want %d", n, want)
		}
		m.back(old)
		delete(m.held, f.ids[victim])
		for _, h := range old { // nothing that it does counts any more
			if err := h.task.Finish(ctx); !is_(err, worqr.ErrLost) {
				t.Errorf("finish by a failed worker: %v", err)
			}
		}
		if len(old) == 0 { // it has not noticed
			if _, err := f.queues[victim].StartTask(ctx); !is_(err, worqr.ErrEvicted) {
				t.Errorf("start by a failed worker: %v", err)
			}
		}
		eventually(t, "it is back", func() bool {
			_, err := f.queues[victim].Stats(ctx)
			must(t, err)
			n, err := redis.Int(f.c.Do("ZSCORE", f.prefix+":workers:{q}", f.peers[victim].ID()))
			return err == nil && n > 0 && f.peers[victim].ID() != f.ids[victim] && f.queues[victim].StartWork(ctx) == nil
		})
		f.ids[victim] = f.peers[victim].ID()
	case op < 92 && id != "":
		note("stop work and start again")
		must(t, q.StopWork(ctx))
		m.back(held)
		delete(m.held, id)
		must(t, q.StartWork(ctx))
	case op < 94:
		note("delete")
		must(t, q.Delete(ctx))
		for j, p := range m.waiting {
			if l, ok := m.locks[p]; ok && l.copy == m.copies[j] {
				delete(m.locks, p)
			}
		}
		m.waiting, m.copies = nil, nil
	case op < 97:
		note("pause or resume")
		if m.paused {
			must(t, q.Resume(ctx))
		} else {
			must(t, q.Pause(ctx))
		}
		m.paused = !m.paused
	}
}

// compare holds Redis against the model.
func (f *fleet) compare() {
	t, m, q := f.t, f.m, f.queues[0]
	t.Helper()
	if got := waiting(t, q); !slices.Equal(got, m.waiting) {
		t.Errorf("waiting %q, want %q", got, m.waiting)
	}
	key := func(kind string) string { return f.prefix + ":" + kind + ":{q}" }
	// One owner: a processing list exists if and only if one working set has
	// its id; owners are members.
	want := map[string]bool{}
	for id, hs := range m.held {
		for _, h := range hs {
			want[key("process")+":"+h.task.ID] = true
			payload, err := redis.String(f.c.Do("LINDEX", key("process")+":"+h.task.ID, 0))
			if err != nil || payload != h.payload {
				t.Errorf("process of %q holds %q, %v", h.payload, payload, err)
			}
			token, err := redis.Int64(f.c.Do("ZSCORE", key("working")+":"+id, h.task.ID))
			if err != nil || token != h.task.Token {
				t.Errorf("%q is held with token %d, %v; want %d", h.payload, token, err, h.task.Token)
			}
		}
		n, err := redis.Int(f.c.Do("ZCARD", key("working")+":"+id))
		if err != nil || n != len(hs) {
			t.Errorf("%s holds %d, want %d", id, n, len(hs))
		}
		if _, err := redis.Int64(f.c.Do("ZSCORE", key("workers"), id)); err != nil {
			t.Errorf("%s holds tasks and is no member: %v", id, err)
		}
	}
	for _, k := range redistest.Keys(t, f.c, f.prefix) {
		if strings.HasPrefix(k, key("process")+":") && !want[k] {
			t.Errorf("%s has no owner", k)
		}
		if strings.HasPrefix(k, key("working")+":") && len(m.held[strings.TrimPrefix(k, key("working")+":")]) == 0 {
			t.Errorf("%s should be empty", k)
		}
	}
	// Locks are membership.
	locks, err := redis.StringMap(f.c.Do("HGETALL", key("unique")))
	must(t, err)
	delete(locks, "offset")
	if len(locks) != len(m.locks) {
		t.Errorf("%d locks %v, want %v", len(locks), locks, m.locks)
	}
	// Nothing left of cancels when nothing that they cover runs, once the
	// holders have said so.
	covered := false
	for _, hs := range m.held {
		for _, h := range hs {
			covered = covered || h.canceled
		}
	}
	if !covered {
		eventually(t, "the cancel log is empty", func() bool {
			n, err := redis.Int(f.c.Do("ZCARD", key("canceled")))
			must(t, err)
			return n == 0
		})
	}
}
