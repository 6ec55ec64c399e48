package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

const (
	chaosKeys  = 2000
	chaosPeers = 3
)

var actors = map[string]func(c childConfig, p *worqr.Peer, say func(report)) actor{
	"chaos":    chaotic,
	"deadly":   deadlyPeer,
	"due":      punctual,
	"repeater": repeater,
}

// The exclusion of handlers is judged in Redis, where there is one order of all
// things. A handler enters and leaves by these scripts; in between it is inside.
// It enters only if its worker is a member that holds its process at that very
// moment, and otherwise says "late": it was taken away before it began, and may
// do what it wants.
//
// Between two commands, a worker is a member until somebody fences it, dead or
// alive, stopped or not. As long as it is, nobody may start what it holds; and
// it holds a task until after its handler has returned, so until after it has
// left. So when one enters and finds another inside whose worker is still a
// member, two handlers of the key ran at once that both were entitled to: a
// violation, whatever was slow. One whose worker is no member is forgotten, since
// it runs on in vain. There is one more who does not count: a handler that did
// not return within its Grace after its time was up has been disowned, so nobody
// is accused of what comes after its deadline. (Cancels end contexts too, but
// the handlers here obey within a Grace.)
//
// Besides, tokens of a key never go down among those who enter, and whoever
// leaves as a member is still the last who entered.
var enter = redis.NewScript(4, `
local inside, last, workers, working = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, token, deadline, key = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local owner
for _, w in ipairs(redis.call('ZRANGE', workers, 0, -1)) do
  if redis.call('ZSCORE', working .. ':' .. w, id) then
    owner = w
  end
end
if not owner then
  return 'late'
end
local verdict = ''
local others = redis.call('HGETALL', inside)
for i = 1, #others, 2 do
  local w, other, until_ = string.match(others[i + 1], '^(.*)|(.*)|(.*)$')
  if not redis.call('ZSCORE', workers, w) then
    redis.call('HDEL', inside, others[i])
  elseif others[i] ~= id and now < tonumber(until_) then
    verdict = verdict .. ' inside with ' .. token .. ' of ' .. owner .. ': ' .. other .. ' of ' .. w
  end
end
local before = tonumber(redis.call('HGET', last, key) or 0)
if before >= token then
  verdict = verdict .. ' token ' .. token .. ' after ' .. before
end
redis.call('HSET', inside, id, owner .. '|' .. token .. '|' .. deadline)
redis.call('HSET', last, key, token)
return verdict
`)

var leave = redis.NewScript(3, `
local inside, last, workers = KEYS[1], KEYS[2], KEYS[3]
local id, token, key = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local mine = redis.call('HGET', inside, id)
redis.call('HDEL', inside, id)
if not mine then
  return ''
end
local w, _, until_ = string.match(mine, '^(.*)|(.*)|(.*)$')
local before = tonumber(redis.call('HGET', last, key) or 0)
if before ~= token and now < tonumber(until_) and redis.call('ZSCORE', workers, w) then
  return ' left with ' .. token .. ' of ' .. w .. ' after ' .. before
end
return ''
`)

// chaotic is a peer of TestKeysUnderFaults. It puts, removes and cancels keys at
// random, and its handler ends in every way, until it is told "calm". Then it
// says "calm" when no call of its own is under way any more, and each handler
// does its work.
func chaotic(c childConfig, p *worqr.Peer, say func(report)) actor {
	q := p.Queue(c.Queue)
	pool := &redis.Pool{MaxIdle: 20, Dial: func() (redis.Conn, error) {
		return redis.DialURL(c.Admin, redis.DialReadTimeout(patience))
	}}
	do := func(f func(redis.Conn) (any, error)) any {
		conn := pool.Get()
		defer func() { _ = conn.Close() }()
		v, err := f(conn)
		if err != nil {
			say(report{What: "violation", Err: "the test's own connection: " + err.Error()})
		}
		return v
	}
	key := func(kind string) string { return c.Prefix + ":" + kind + ":{" + c.Queue + "}" }
	own := "chaos" + c.Prefix // keys of the test
	var calm atomic.Bool
	var number atomic.Int64
	me := fmt.Sprintf("%08x", rand.Uint32())
	name := func() string { return fmt.Sprintf("%s.%d", me, number.Add(1)) }
	put := func(key_ string, o *worqr.PutOptions) {
		payload, rule := name(), "replace"
		if o != nil && o.KeepPayload {
			rule = "keep"
		}
		say(report{What: "put", Key: key_, Payload: payload, Err: rule})
		err := q.Put(context.Background(), key_, []byte(payload), o)
		r := report{What: "ack", Key: key_, Payload: payload, Err: kindOf(err)}
		if err == nil {
			r.Token, _ = redis.Int64(do(func(c redis.Conn) (any, error) {
				v, err := c.Do("GET", key("token"))
				if errors.Is(err, redis.ErrNil) || v == nil {
					return int64(0), nil
				}
				return v, err
			}), nil)
		}
		say(r)
	}
	options := func() *worqr.PutOptions {
		o := &worqr.PutOptions{}
		switch n := rand.IntN(10); {
		case n < 1:
			o.At = time.Now().Add(-rand.N(time.Second))
		case n < 5:
			o.At = time.Now().Add(rand.N(1200 * time.Millisecond))
		}
		if c.Explicit {
			o.KeepPayload = rand.IntN(4) == 0
			o.KeepCounts = rand.IntN(4) == 0
			o.Reschedule = worqr.Reschedule(rand.IntN(4))
		} else if rand.IntN(2) == 0 {
			return nil
		}
		return o
	}

	handler := func(ctx context.Context, t *worqr.Task) error {
		say(report{What: "start", Key: t.Key, Payload: string(t.Payload), Token: t.Token})
		if t.Key != "" {
			deadline := int64(math.MaxInt64 / 2)
			if d, ok := ctx.Deadline(); ok {
				deadline = d.UnixMilli()
			}
			verdict, _ := redis.String(do(func(conn redis.Conn) (any, error) {
				return enter.Do(conn, own+":inside:"+t.Key, own+":last", key("workers"), key("working"), t.AttemptID, t.Token, deadline, t.Key)
			}), nil)
			switch verdict {
			case "late":
				say(report{What: "late", Key: t.Key})
				return ctx.Err()
			case "":
			default:
				say(report{What: "violation", Key: t.Key, Token: t.Token, Err: verdict})
			}
			defer func() {
				verdict, _ := redis.String(do(func(conn redis.Conn) (any, error) {
					return leave.Do(conn, own+":inside:"+t.Key, own+":last", key("workers"), t.AttemptID, t.Token, t.Key)
				}), nil)
				if verdict != "" {
					say(report{What: "violation", Key: t.Key, Token: t.Token, Err: verdict})
				}
			}()
		}
		pause := func(d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}
		if calm.Load() {
			return nil
		}
		if rand.IntN(4) == 0 {
			pause(rand.N(10 * time.Millisecond))
		}
		fail := errors.New("it fails")
		switch n := rand.IntN(100); {
		case n < 8 && (c.Explicit || t.Retries < 1): // the default Backoff is long
			return fail
		case n < 18:
			return worqr.RetryAfter(fail, rand.N(100*time.Millisecond)-20*time.Millisecond)
		case n < 22 && (c.Explicit || t.Retries < 1):
			panic("it panics")
		case n < 24:
			return worqr.Permanent(errors.New("permanent"))
		case n < 26: // until the timeout, if there is one
			pause(time.Second)
			return ctx.Err()
		case n < 27: // does not obey
			time.Sleep(400 * time.Millisecond)
			return ctx.Err()
		case n < 30:
			pause(rand.N(300 * time.Millisecond))
		case n < 38 && t.Key != "":
			put(t.Key, options())
			if n < 34 {
				return worqr.RetryAfter(fail, rand.N(50*time.Millisecond))
			}
		}
		return nil
	}
	opts := &worqr.HandleOptions{KeepFailed: 1_000_000}
	if c.Explicit {
		opts.Concurrency, opts.MaxRetries, opts.MaxCrashes = 8, 3, -1
		opts.Timeout, opts.Grace = 200*time.Millisecond, 8*time.Second
		opts.Backoff = func(int) time.Duration { return rand.N(50 * time.Millisecond) }
	}

	one := func() {
		k := fmt.Sprintf("key%d", rand.IntN(chaosKeys))
		if rand.IntN(3) == 0 {
			k = fmt.Sprintf("key%d", rand.IntN(40)) // some more often
		}
		cut := func(what string, f func() (int, error)) {
			r := report{What: "cut", Key: k, Payload: name()}
			say(r)
			n, err := f()
			r.What, r.Token, r.Err = "cut done", int64(n), what
			if err != nil {
				r.Err = "unknown"
			}
			say(r)
		}
		switch n := rand.IntN(100); {
		case n < 80:
			put(k, options())
		case n < 90:
			payload := name()
			say(report{What: "put", Payload: payload, Err: "replace"})
			err := q.Enqueue(context.Background(), []byte(payload))
			say(report{What: "ack", Payload: payload, Err: kindOf(err)})
		case n < 93:
			payload := fmt.Sprint("unique", rand.IntN(20))
			err := q.EnqueueUnique(context.Background(), []byte(payload))
			if err != nil && !is_(err, worqr.ErrDuplicate) {
				say(report{What: "violation", Err: err.Error()})
			}
		case n < 97:
			cut("cancel", func() (int, error) {
				_, err := q.CancelKey(context.Background(), k)
				return 1, err
			})
		default:
			cut("remove", func() (int, error) {
				removed, err := q.RemoveKey(context.Background(), k)
				if removed {
					return 1, err
				}
				return 0, err
			})
		}
	}
	return actor{
		handler: handler,
		opts:    opts,
		told:    func(string) { calm.Store(true) },
		act: func(ctx context.Context) {
			var putters sync.WaitGroup
			for range 2 {
				putters.Go(func() {
					for ctx.Err() == nil && !calm.Load() {
						one()
						time.Sleep(rand.N(8 * time.Millisecond))
					}
				})
			}
			putters.Wait()
			say(report{What: "calm"})
		},
	}
}

func kindOf(err error) string {
	switch {
	case err == nil:
		return ""
	case is_(err, worqr.ErrUnknownOutcome):
		return "unknown"
	}
	return err.Error()
}

// A history is what the peers of TestKeysUnderFaults have said.
type history struct {
	mu         sync.Mutex
	puts       map[string]*putting // by payload
	cuts       map[string]*cutting
	runs       map[string][]report // by key
	ran        map[string]int      // payload → runs
	violations []string
	calm, late int
	dead       sync.WaitGroup
}

type putting struct {
	key, payload string
	keep         bool
	from, to     time.Time // it was carried out in between
	token        int64     // what was started with a higher one was started later
	acked        bool
	refused      bool
}

type cutting struct {
	key      string
	from, to time.Time
	nothing  bool // removed nothing
}

var never = time.Unix(1<<40, 0)

func (h *history) take(r report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r.What {
	case "put":
		h.puts[r.Payload] = &putting{key: r.Key, payload: r.Payload, keep: r.Err == "keep", from: r.At, to: never}
	case "ack":
		p := h.puts[r.Payload]
		switch r.Err {
		case "":
			p.acked, p.to, p.token = true, r.At, r.Token
		case "unknown":
		default:
			p.refused = true
			h.violations = append(h.violations, "a put fails: "+r.Err)
		}
	case "cut":
		h.cuts[r.Payload] = &cutting{key: r.Key, from: r.At, to: never}
	case "cut done":
		if r.Err != "unknown" {
			h.cuts[r.Payload].to, h.cuts[r.Payload].nothing = r.At, r.Token == 0
		}
	case "start":
		h.runs[r.Key] = append(h.runs[r.Key], r)
		h.ran[r.Payload]++
	case "late":
		h.late++
	case "calm":
		h.calm++
	case "violation":
		h.violations = append(h.violations, fmt.Sprintf("%s token %d: %s", r.Key, r.Token, r.Err))
	}
}

func (h *history) listen(p *process) {
	h.dead.Go(func() {
		for {
			select {
			case r := <-p.reports:
				h.take(r)
			case <-p.exited:
				for {
					select {
					case r := <-p.reports:
						h.take(r)
					default:
						return
					}
				}
			}
		}
	})
}

// judge checks that no put was lost, and none was run after it had been replaced.
//
// When calls overlap nobody knows their order in Redis, so a put may have come
// after another unless it was answered before the other was sent. What is known:
//
//   - After a put that replaces, and was answered, its payload runs, or that of
//     another which replaces and may have come after it. One that keeps the
//     payload excuses nothing.
//   - After one that keeps the payload, the key runs.
//   - A process with a higher token than the last that was given when a replacing
//     put had been answered was started after it. So it does not run a payload
//     that was put before.
//
// Unless a cancel or a removal that removed something may have come after it. To
// be in the failed queue is to have run: by then its time had come.
func (h *history) judge(t *testing.T, failed []worqr.FailedTask) (certain int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type end struct {
		payload string
		token   int64
		at      time.Time
	}
	ends := map[string][]end{}
	for key, runs := range h.runs {
		for _, r := range runs {
			ends[key] = append(ends[key], end{r.Payload, r.Token, r.At})
		}
	}
	for _, f := range failed {
		ends[f.Key] = append(ends[f.Key], end{string(f.Payload), 0, f.FailedAt.Add(time.Millisecond)})
	}
	cuts := map[string][]*cutting{}
	for _, c := range h.cuts {
		cuts[c.key] = append(cuts[c.key], c)
	}
	for _, p := range h.puts {
		if !p.acked {
			continue
		}
		if p.key == "" {
			if !slices.ContainsFunc(ends[""], func(e end) bool { return e.payload == p.payload }) {
				t.Errorf("enqueued and never run: %s", p.payload)
			}
			continue
		}
		if slices.ContainsFunc(cuts[p.key], func(c *cutting) bool { return c.to.After(p.from) && !c.nothing }) {
			continue
		}
		done := false
		for _, e := range ends[p.key] {
			other := h.puts[e.payload]
			if other == nil {
				t.Errorf("%s runs %q, which nobody put", p.key, e.payload)
				continue
			}
			if !e.at.Before(p.from) && (p.keep || other == p || !other.keep && other.to.After(p.from)) {
				done = true
				if other == p {
					certain++
				}
			}
			if e.token > p.token && !p.keep && other != p && other.to.Before(p.from) {
				t.Errorf("%s runs %s with token %d, after %s had been put, when the last token was %d", p.key, e.payload, e.token, p.payload, p.token)
			}
		}
		if !done {
			t.Errorf("%s: %s was put %v and is lost (keep %v)\nends %v", p.key, p.payload, p.from, p.keep, ends[p.key])
		}
	}
	for _, v := range h.violations {
		t.Error("violation: ", v)
	}
	return certain
}

// Keys are put at random from three processes while these are killed, stopped
// for longer than their leases and replaced, and while handlers end in every
// way: no key ever runs twice at once, none is stuck, and no put is lost.
func TestKeysUnderFaults(t *testing.T) {
	t.Parallel()
	storm := 8 * time.Second
	if s := os.Getenv(chaosEnv); s != "" {
		var err error
		storm, err = time.ParseDuration(s)
		must(t, err)
	}
	for name, c := range map[string]childConfig{
		"defaults": {},
		"explicit": {Explicit: true, Lease: 600 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Mode, c.URL, c.Queue, c.Prefix = "chaos", redistest.URL(), "q", redistest.Prefix(t)
			keysUnderFaults(t, c, storm)
		})
	}
}

func keysUnderFaults(t *testing.T, c childConfig, storm time.Duration) {
	conn := redistest.Conn(t)
	t.Cleanup(func() {
		for _, k := range redistest.Keys(t, conn, "chaos"+c.Prefix) {
			_, _ = conn.Do("DEL", k) // tidying up
		}
	})
	p := open(t, worqr.Options{Prefix: c.Prefix})
	q := p.Queue(c.Queue)
	h := &history{puts: map[string]*putting{}, cuts: map[string]*cutting{}, runs: map[string][]report{}, ran: map[string]int{}}
	start := func() *process {
		p := launch(t, c)
		h.listen(p)
		return p
	}
	lease, quiet := c.Lease, 300*time.Millisecond
	if lease == 0 {
		lease, quiet = 3*time.Second, time.Second
	}

	peers := make([]*process, chaosPeers)
	asleep := make([]time.Time, chaosPeers) // until when
	for i := range peers {
		peers[i] = start()
	}
	wake := func(all bool) {
		for i, until := range asleep {
			if !until.IsZero() && (all || time.Now().After(until)) {
				peers[i].signal(syscall.SIGCONT)
				asleep[i] = time.Time{}
			}
		}
	}
	kills, stops, ends := 0, 0, 0
	for over, next := time.Now().Add(storm), time.Now().Add(quiet); time.Now().Before(over); time.Sleep(10 * time.Millisecond) {
		wake(false)
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(quiet/2 + rand.N(quiet))
		i := rand.IntN(chaosPeers)
		if !asleep[i].IsZero() {
			continue
		}
		switch n := rand.IntN(10); {
		case n < 4:
			kills++
			peers[i].kill()
			peers[i] = start()
		case n < 8:
			stops++
			peers[i].signal(syscall.SIGSTOP)
			asleep[i] = time.Now().Add(lease*11/10 + rand.N(lease/2))
		default:
			ends++
			peers[i].signal(syscall.SIGTERM)
			old := peers[i]
			peers[i] = start()
			t.Cleanup(func() {
				<-old.exited
				state := old.cmd.ProcessState
				if early := state.Sys().(syscall.WaitStatus); early.Signaled() && early.Signal() == syscall.SIGTERM {
					return // before it could hear it
				}
				if !state.Success() {
					t.Errorf("a peer that was asked to end: %v", state)
				}
			})
		}
	}
	wake(true)
	for _, p := range peers {
		_, err := fmt.Fprintln(p.in, "calm")
		must(t, err)
	}
	idle := func() bool {
		s, err := q.Stats(t.Context())
		must(t, err)
		return s.Waiting+s.Scheduled+s.Running == 0
	}
	settle := func(what string) {
		t.Helper()
		began := time.Now()
		for still := 0; still < 3; { // a put may be under way
			if time.Since(began) > 2*patience {
				for _, k := range redistest.Keys(t, conn, c.Prefix) {
					t.Log(k)
				}
				t.Fatalf("%s: keys are stuck", what)
			}
			if idle() {
				still++
			} else {
				still = 0
			}
			time.Sleep(50 * time.Millisecond) // between two looks
		}
		t.Logf("%s: settled in %v", what, time.Since(began))
	}
	eventually(t, "the putters have stopped", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.calm >= chaosPeers
	})
	settle("after the storm")

	// Nothing is under way any more: the last put of each key is what runs.
	last := map[string]string{}
	for i := range chaosKeys {
		k := fmt.Sprintf("key%d", i)
		o := &worqr.PutOptions{}
		if i%2 == 0 {
			o.At = time.Now().Add(rand.N(500 * time.Millisecond))
		}
		last[k] = "last" + k
		h.take(report{What: "put", Key: k, Payload: "early" + k, At: time.Now()})
		must(t, q.Put(t.Context(), k, []byte("early"+k), o))
		h.take(report{What: "ack", Key: k, Payload: "early" + k, Token: math.MaxInt64, At: time.Now()})
		h.take(report{What: "put", Key: k, Payload: last[k], At: time.Now()})
		must(t, q.Put(t.Context(), k, []byte(last[k]), o))
		h.take(report{What: "ack", Key: k, Payload: last[k], Token: math.MaxInt64, At: time.Now()})
	}
	settle("after the last puts")
	for _, p := range peers {
		p.signal(syscall.SIGTERM)
	}
	h.dead.Wait()

	var failed []worqr.FailedTask
	kinds := map[worqr.FailureKind]int{}
	for f, err := range q.Failed(t.Context()) {
		must(t, err)
		failed = append(failed, f)
		kinds[f.Kind]++
		retries, crashes := 10, 3
		if c.Explicit {
			retries, crashes = 3, -1
		}
		switch {
		case f.Kind == worqr.FailureCrashed && f.Crashes == crashes:
		case f.Kind == worqr.FailureError && (f.Retries == retries || strings.Contains(f.Error, "permanent")):
		default:
			t.Errorf("failed before its time: %+v", f)
		}
	}
	for k, payload := range last {
		runs := h.runs[k]
		slices.SortFunc(runs, func(a, b report) int { return cmp.Compare(a.Token, b.Token) })
		if n := h.ran[payload]; n == 0 || runs[len(runs)-1].Payload != payload {
			t.Errorf("the last put of %s ran %d times, and was not the last to run: %v", k, n, runs)
		}
	}
	certain := h.judge(t, failed)
	if n, err := q.DeleteAllFailed(t.Context()); err != nil || n != len(failed) {
		t.Errorf("deleted %d of %d failed tasks: %v", n, len(failed), err)
	}
	nothingLeftBut(t, c.Prefix, c.Queue)
	runs := 0
	for _, r := range h.runs {
		runs += len(r)
	}
	t.Logf("%d puts (%d ran themselves), %d cancels and removals, %d runs (%d late), %d kills, %d stops, %d drains, failed %v",
		len(h.puts), certain, len(h.cuts), runs, h.late, kills, stops, ends, kinds)
}

// deadlyPeer is a peer whose handler kills its process, after Fuse, when it is given
// the payload "deadly". Other tasks take Nap.
func deadlyPeer(c childConfig, _ *worqr.Peer, say func(report)) actor {
	return actor{
		handler: func(_ context.Context, t *worqr.Task) error {
			say(report{What: "start", Key: t.Key, Payload: string(t.Payload), Token: int64(t.Crashes)})
			if string(t.Payload) == "deadly" {
				time.Sleep(c.Fuse)
				say(report{What: "death"})
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			time.Sleep(c.Nap)
			say(report{What: "end", Payload: string(t.Payload)})
			return nil
		},
		opts: &worqr.HandleOptions{Concurrency: c.Concurrency},
		told: func(string) {},
	}
}

// A task that kills whoever runs it is in the failed queue after three deaths,
// and 1,000 others are done.
func TestDeadlyPayload(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(ctx context.Context, q *worqr.Queue) error{
		"payload": func(ctx context.Context, q *worqr.Queue) error { return q.Enqueue(ctx, []byte("deadly")) },
		"key":     func(ctx context.Context, q *worqr.Queue) error { return q.Put(ctx, "deadly", []byte("deadly"), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := childConfig{Mode: "deadly", Nap: 10 * time.Millisecond}
			if s := os.Getenv("WORQR_TEST_DEADLY"); s != "" {
				_, err := fmt.Sscanf(s, "%d %d %d", &c.Concurrency, &c.Nap, &c.Fuse)
				must(t, err)
				c.Nap, c.Fuse = c.Nap*time.Millisecond, c.Fuse*time.Millisecond
			}
			c.URL, c.Queue, c.Prefix = redistest.URL(), "q", redistest.Prefix(t)
			deadlyPayload(t, c, put)
		})
	}
}

func deadlyPayload(t *testing.T, c childConfig, put func(context.Context, *worqr.Queue) error) {
	const others = 1000
	q := open(t, worqr.Options{Prefix: c.Prefix}).Queue(c.Queue)
	peers := []*process{spawn(t, c), spawn(t, c)}
	started := time.Now()
	enqueue(t, q, numbers("before", others/2)...)
	must(t, put(t.Context(), q))
	enqueue(t, q, numbers("after", others/2)...)

	deaths, done := 0, map[string]bool{}
	crashes := map[string]int64{} // payload → most
	hear := func(r report) {
		switch r.What {
		case "death":
			deaths++
		case "end":
			done[r.Payload] = true
		case "start":
			crashes[r.Payload] = max(crashes[r.Payload], r.Token)
		}
	}
	failed := func() (all []worqr.FailedTask) {
		for f, err := range q.Failed(t.Context()) {
			must(t, err)
			all = append(all, f)
		}
		return all
	}
	var buried []worqr.FailedTask
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(5 * time.Millisecond) {
		for i, p := range peers {
			gone := false
			select {
			case <-p.exited:
				gone = true
			default:
			}
			for len(p.reports) > 0 {
				hear(<-p.reports)
			}
			if gone {
				peers[i] = launch(t, c)
			}
		}
		buried = failed()
		s, err := q.Stats(t.Context())
		must(t, err)
		if len(buried) > 0 && s.Waiting+s.Scheduled+s.Running == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d deaths, %d others done, %d failed, %+v", deaths, len(done), len(buried), s)
		}
	}
	took := time.Since(started)
	for _, p := range peers {
		p.signal(syscall.SIGTERM)
		<-p.exited
		for len(p.reports) > 0 {
			hear(<-p.reports)
		}
	}
	if deaths != 3 {
		t.Errorf("%d deaths, want 3", deaths)
	}
	if len(done) != others {
		t.Errorf("%d others were done, want %d", len(done), others)
	}
	found := false
	for _, f := range buried {
		switch {
		case string(f.Payload) != "deadly":
			t.Errorf("failed, and innocent: %q %s, %d crashes", f.Payload, f.Kind, f.Crashes)
		case f.Kind != worqr.FailureCrashed || f.Crashes != 3:
			t.Errorf("failed: %+v", f)
		default:
			found = true
		}
	}
	if !found {
		t.Error("the deadly task is not in the failed queue")
	}
	delete(crashes, "deadly")
	counts := map[int64]int{}
	for _, n := range crashes {
		counts[n]++
	}
	t.Logf("failed after %v; crashes that were counted for others when they started: %v", took, counts)
	_, err := q.DeleteAllFailed(t.Context())
	must(t, err)
	// Who found a worker dead may have been killed before it could strike it off.
	sweeper, conn := open(t, worqr.Options{Prefix: c.Prefix}), redistest.Conn(t)
	eventually(t, "the dead are off the roster", func() bool {
		_, err := sweeper.Sweep(t.Context())
		must(t, err)
		n, err := redis.Int(conn.Do("SCARD", c.Prefix+":workers"))
		must(t, err)
		return n == 0
	})
	nothingLeftBut(t, c.Prefix, c.Queue)
}

// punctual is a peer that says when it starts what it is given; "hold" it holds.
func punctual(c childConfig, _ *worqr.Peer, say func(report)) actor {
	return actor{
		handler: func(ctx context.Context, t *worqr.Task) error {
			say(report{What: "start", Key: t.Key, Payload: string(t.Payload), Token: t.Token})
			if string(t.Payload) == "hold" {
				<-ctx.Done()
			}
			return nil
		},
		opts: &worqr.HandleOptions{Concurrency: c.Concurrency},
		told: func(string) {},
	}
}

// An agenda is three punctual peers, to which tasks with times are given.
type agenda struct {
	t      *testing.T
	q      *worqr.Queue
	c      childConfig
	peers  []*process
	starts chan report
	due    map[string]time.Time
	got    []report
}

func newAgenda(t *testing.T, lease time.Duration) *agenda {
	t.Helper()
	prefix := redistest.Prefix(t)
	f := &agenda{
		t: t, q: open(t, worqr.Options{Prefix: prefix}).Queue("q"), starts: make(chan report, 1000), due: map[string]time.Time{},
		c: childConfig{Mode: "due", URL: redistest.URL(), Queue: "q", Prefix: prefix, Concurrency: 2, Lease: lease},
	}
	for range 3 {
		f.peers = append(f.peers, f.spawn())
	}
	idle(t, f.q, len(f.peers))
	return f
}

func (f *agenda) spawn() *process {
	p := spawn(f.t, f.c)
	go func() {
		for {
			select {
			case r := <-p.reports:
				f.starts <- r
			case <-p.exited:
				return
			}
		}
	}()
	return p
}

// ahead puts a task at a time.
func (f *agenda) ahead(d time.Duration) {
	f.t.Helper()
	k := fmt.Sprint(len(f.due))
	f.due[k] = time.Now().Add(d)
	must(f.t, f.q.Put(f.t.Context(), k, []byte(k), &worqr.PutOptions{At: f.due[k]}))
}

func (f *agenda) take(n int) { f.got = append(f.got, receive(f.t, f.starts, n)...) }

// check demands that what was taken started within the bound, and logs when it did.
func (f *agenda) check(what string, bound time.Duration) {
	f.t.Helper()
	var late []time.Duration
	for _, r := range f.got {
		d := r.At.Sub(f.due[r.Key])
		late = append(late, d)
		if d < 0 || d > bound {
			f.t.Errorf("%s: starts %v after its time, at most %v", what, d, bound)
		}
	}
	slices.Sort(late)
	at := func(q float64) time.Duration { return late[int(q*float64(len(late)-1))].Round(10 * time.Microsecond) }
	f.t.Logf("%s: %d tasks; after their time: median %v, 95%% %v, 99%% %v, most %v", what, len(f.got), at(.5), at(.95), at(.99), at(1))
	f.got = nil
}

// An idle fleet starts what has a time when that comes. Ten minutes pass between two of
// its beats, so nothing but its timers starts anything here, and the bound may be wide.
func TestDueOnTime(t *testing.T) {
	const slack = 10 * time.Second
	f := newAgenda(t, 30*time.Minute)
	const n = 100
	for range n {
		f.ahead(200*time.Millisecond + rand.N(300*time.Millisecond))
	}
	f.take(n)
	f.check("a hundred at once", slack)

	for range 5 {
		f.ahead(200*time.Millisecond + rand.N(100*time.Millisecond))
		f.take(1)
	}
	f.check("one by one", slack)

	for range 5 { // each earlier than the one before
		f.ahead(500 * time.Millisecond)
		f.ahead(300 * time.Millisecond)
		f.ahead(200 * time.Millisecond)
		f.take(3)
	}
	f.check("earlier ones later", slack)

	// All but one have no free slot, and that has one.
	enqueue(t, f.q, "hold", "hold", "hold", "hold", "hold")
	receive(t, f.starts, 5)
	for range 5 {
		f.ahead(200*time.Millisecond + rand.N(300*time.Millisecond))
		f.take(1)
	}
	f.check("all but one peer are busy", slack)
}

// Where the one who keeps the time was killed, the next beat of another one starts what is
// due; nobody waits until the dead one is failed, which takes two beats at least.
func TestDueWithoutKeeper(t *testing.T) {
	const beat = 4 * time.Second
	f := newAgenda(t, 3*beat)
	conn := redistest.Conn(t)
	keeper := func() (id string) {
		eventually(t, "somebody keeps the time", func() bool {
			last, err := redis.Strings(conn.Do("ZRANGE", f.c.Prefix+":idle:{q}", -1, -1, "WITHSCORES"))
			must(t, err)
			if len(last) == 2 && len(last[1]) >= 14 { // others: since when they are idle, in ms
				id = last[0]
			}
			return id != ""
		})
		return id
	}
	for range 2 {
		f.ahead(400 * time.Millisecond)
		victim, err := redis.Int(conn.Do("HGET", f.c.Prefix+":worker:"+keeper(), "pid"))
		must(t, err)
		i := slices.IndexFunc(f.peers, func(p *process) bool { return p.cmd.Process.Pid == victim })
		f.peers[i].kill()
		f.ahead(450 * time.Millisecond)
		f.take(2)
		f.peers[i] = f.spawn()
	}
	f.check("the keeper of the clock was killed", 7*beat/4)
}

// A task that one more death would have fail gets its turn, however busy the
// peer's other queues are.
func TestLastChanceBesideBusyQueue(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	enqueue(t, p.Queue("quiet"), numbers("accused", 3)...)
	for range 2 {
		victim := open(t, worqr.Options{Prefix: prefix})
		tasks, err := working(t, victim, "quiet").StartTasks(t.Context(), 3)
		must(t, err)
		n, err := p.FailWorker(t.Context(), victim.WorkerID())
		must(t, err)
		if len(tasks) != 3 || n != 3 {
			t.Fatalf("%d tasks, and %d returned", len(tasks), n)
		}
		must(t, victim.Close())
	}
	ran := make(chan time.Time, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var busy atomic.Int64
	p.Queue("quiet").Handle(func(context.Context, *worqr.Task) error {
		ran <- time.Now()
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	p.Queue("busy").Handle(func(context.Context, *worqr.Task) error {
		busy.Add(1)
		return nil
	}, &worqr.HandleOptions{Concurrency: 16})
	var feeding sync.WaitGroup
	feeder := open(t, worqr.Options{Prefix: prefix})
	feeding.Go(func() {
		for n := int64(0); ctx.Err() == nil; {
			if n-busy.Load() > 5000 {
				time.Sleep(time.Millisecond)
				continue
			}
			if feeder.Queue("busy").Enqueue(ctx, make([][]byte, 500)...) == nil {
				n += 500
			}
		}
	})
	must(t, p.Queue("quiet").Pause(t.Context()))
	run(t, p)
	eventually(t, "it is busy", func() bool { return busy.Load() > 5000 })
	must(t, p.Queue("quiet").Resume(t.Context()))
	began := time.Now()
	for range 3 {
		receive(t, ran, 1)
		t.Logf("after %v, beside %d others", time.Since(began), busy.Load())
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("they waited %v", took)
	}
	cancel()
	feeding.Wait()
}

// While a fleet works, is killed, stopped and recovers, there is nothing to report:
// no page that is old when the next is read makes for a false alarm. One peer lives
// all the time, so there is somebody to judge the others.
func TestCheckBusyFleet(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	storm := 6 * time.Second
	if s := os.Getenv(chaosEnv); s != "" {
		var err error
		storm, err = time.ParseDuration(s)
		is.NoErr(err)
	}
	seed := *checkSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	random := rand.New(rand.NewPCG(seed, 0))
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Lease: time.Second, Mode: "chaos", Explicit: true}
	conn := redistest.Conn(t)
	t.Cleanup(func() {
		for _, k := range redistest.Keys(t, conn, "chaos"+c.Prefix) {
			_, _ = conn.Do("DEL", k) // tidying up
		}
	})
	h := &history{puts: map[string]*putting{}, cuts: map[string]*cutting{}, runs: map[string][]report{}, ran: map[string]int{}}
	start := func() *process {
		p := launch(t, c)
		h.listen(p)
		return p
	}
	steady := start()
	others := []*process{start(), start()}

	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: c.Prefix, Lease: c.Lease})
	over, checked := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { checked <- n }()
		for {
			select {
			case <-over:
				return
			default:
			}
			do := doctor.Check
			if n%2 == 1 {
				do = doctor.Repair // which has nothing to do
			}
			report, err := do(context.Background(), nil)
			if err != nil {
				t.Errorf("check %d: %v", n, err)
				return
			}
			n++
			for _, f := range ills(report) {
				t.Errorf("check %d of a fleet that is well: %v", n, f)
			}
		}
	}()
	meddled := make(chan int, 1)
	go func() { // with what the peers do not do
		n, q, ctx := 0, doctor.Queue(c.Queue), context.Background()
		defer func() { meddled <- n }()
		for {
			select {
			case <-over:
				return
			default:
			}
			var err error
			switch n++; n % 40 {
			case 10:
				_, err = q.RequeueAllFailed(ctx)
			case 20:
				_, err = q.DeleteAllFailed(ctx)
			case 30:
				err = q.Delete(ctx)
			default:
				cut, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // it waits for who is stopped
				_, err = q.Cancel(cut, fmt.Appendf(nil, "unique%d", n%20))
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
			}
			if err != nil {
				t.Errorf("meddling: %v", err)
				return
			}
		}
	}()
	kills, stops := 0, 0
	for end := time.Now().Add(storm); time.Now().Before(end); time.Sleep(200*time.Millisecond + time.Duration(random.Int64N(int64(600*time.Millisecond)))) {
		i := random.IntN(len(others))
		if random.IntN(2) == 0 {
			kills++
			others[i].kill()
			others[i] = start()
			continue
		}
		stops++
		others[i].signal(syscall.SIGSTOP)
		time.Sleep(c.Lease * 3 / 2) // it is to be given up for dead meanwhile
		others[i].signal(syscall.SIGCONT)
	}
	close(over)
	checks, meddlings := <-checked, <-meddled
	t.Logf("%d checks, %d cancels and the like, %d kills, %d stops; to repeat: %s=%v go test -run TestCheckBusyFleet . -check.seed %d", checks, meddlings, kills, stops, chaosEnv, storm, seed)
	is.True(checks > 0)
	for _, p := range append(others, steady) {
		p.kill()
	}
	h.dead.Wait()

	// The dead are found, and Repair has all that they held done by others.
	dead, unserved := 0, 0
	eventually(t, "nobody holds anything", func() bool {
		report, err := doctor.Repair(t.Context(), nil)
		is.NoErr(err)
		is.True(report.OK())
		dead += count(report, "expired-worker")
		stats, err := doctor.Queue("q").Stats(t.Context())
		is.NoErr(err)
		return stats.Running == 0 && stats.Workers == 0
	})
	is.True(dead > 0)
	report, err := doctor.Check(t.Context(), nil)
	is.NoErr(err)
	is.True(report.OK())
	for _, f := range ills(report) {
		is.Equal(f.Kind, worqr.FindingKind("no-worker")) // that is all there is left to say
		unserved++
	}
	is.True(unserved <= 1)
}
