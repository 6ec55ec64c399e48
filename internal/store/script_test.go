package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

// A scenario is a seeded queue "q" and calls on it, one after the other.
type scenario struct {
	name  string
	alive []string // workers that listen to their wake channel
	seed  state
	steps []when
}

// A when is one call: what it returns, the whole keyspace after it, and all published messages, in
// order. A nil state means that the keyspace is unchanged.
type when struct {
	call  func(e *env) string
	want  string
	state state
	heard []string
}

// An env is the Redis of one scenario.
type env struct {
	t      testing.TB
	is     *is.I
	ctx    context.Context
	prefix string
	q      keys.Queue
	line   *redisconn.Line
	doctor func() *redisconn.Line // the connection for checks
	conn   redis.Conn             // for looking at the keyspace
	ear    redis.PubSubConn
	still  int64    // the time, if it stands still
	ends   []string // entries whose ends are received
	way    way
	firsts map[string]int // by ms: the first sequence seen of added tasks
}

func newEnv(t testing.TB, url string, alive []string) *env {
	t.Helper()
	prefix := redistest.Prefix(t)
	dial := sure(redisconn.FromURL(redistest.Worker(t, url, prefix)))(t)
	e := &env{
		t: t, is: is.New(t), ctx: t.Context(), prefix: prefix,
		line: redisconn.NewLine(dial, time.Minute), conn: redistest.Dial(t, url), firsts: map[string]int{},
	}
	t.Cleanup(e.line.Close)
	e.doctor = sync.OnceValue(func() *redisconn.Line {
		dial := sure(redisconn.FromURL(redistest.Doctor(t, url, prefix)))(t)
		l := redisconn.NewLine(dial, time.Minute)
		t.Cleanup(l.Close)
		return l
	})
	e.q = keys.NewSpace(e.prefix).Queue("q")
	e.ear = redis.PubSubConn{Conn: redistest.Dial(t, url)}
	e.listen(alive, "SUBSCRIBE")
	return e
}

// beside returns the Redis of a parallel test, with a keyspace.
func beside(t *testing.T, seed state, alive ...string) *env {
	t.Helper()
	t.Parallel()
	e := newEnv(t, redistest.URL(), alive)
	e.seed(seed)
	return e
}

// linesTo returns the lines of a peer that logs nothing.
func linesTo(t testing.TB, place *Servers, timeout time.Duration) (*Lines, *logs.Log) {
	log := logs.New(slog.New(slog.DiscardHandler))
	l := NewLines(place, Lanes, log, timeout, time.Second)
	t.Cleanup(l.Close)
	return l, log
}

// listen subscribes to everything that is published from now on.
func (e *env) listen(alive []string, command string) {
	e.t.Helper()
	channels := []any{e.prefix + "_end"}
	for _, k := range []keys.Kind{keys.KindEnqueue, keys.KindDone, keys.KindCancel, keys.KindDelete, keys.KindWork} {
		channels = append(channels, e.q.Channel(k))
	}
	for _, w := range alive {
		q := e.q
		if entry, ends := strings.CutPrefix(w, "end:"); ends {
			channels = append(channels, q.End(entry))
			e.ends = append(e.ends, entry)
			continue
		}
		if of, ok := strings.CutPrefix(w, "failed:"); ok {
			q, w = e.q.Failed(), of
		}
		channels = append(channels, q.Wake(w))
	}
	for _, c := range channels {
		e.must(nil, e.ear.Conn.Send(command, c))
	}
	e.must(nil, e.ear.Conn.Flush())
	for range channels {
		if s, ok := e.ear.Receive().(redis.Subscription); !ok {
			e.t.Fatal("the subscription was not confirmed: ", s)
		}
	}
}

// unhear unsubscribes from finished tasks.
func (e *env) unhear() {
	e.t.Helper()
	e.must(nil, e.ear.Unsubscribe(e.q.Channel(keys.KindDone)))
	e.ear.Receive()
}

// sharded is a connection that treats sharded channels as ordinary ones.
type sharded struct{ redis.Conn }

func (c sharded) DoWithTimeout(d time.Duration, command string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, command, args...)
}

func (c sharded) Receive() (any, error) { return c.ReceiveWithTimeout(time.Minute) }

func (c sharded) ReceiveWithTimeout(d time.Duration) (any, error) {
	reply, err := redis.ReceiveWithTimeout(c.Conn, d)
	if words, ok := reply.([]any); ok && err == nil {
		if kind, ok := words[0].([]byte); ok {
			words[0] = bytes.TrimPrefix(kind, []byte("s"))
			if string(kind) == "subscribe" {
				words[0] = kind
			}
		}
	}
	return reply, err
}

// shards reports whether the server has sharded channels. Redis 6.2 doesn't, and neither do the
// servers of integration/spec.
var shards = sync.OnceValue(func() bool {
	c, err := redis.DialURL(redistest.URL())
	if err != nil {
		return true // the tests report the error
	}
	defer c.Close() //nolint:errcheck // the connection was only for this question
	_, err = c.Do("SSUBSCRIBE", "shards")
	return !redisconn.UnknownCommand(err)
})

// scatter makes the queue use the scripts for a cluster. A single server can run them, too.
func (e *env) scatter(url string, alive []string) {
	e.t.Helper()
	e.q = keys.NewSpace(e.prefix).InCluster().Queue("q")
	e.line = redisconn.NewLine(sure(redisconn.FromURL(url))(e.t), time.Minute) // whose user may publish sharded messages
	e.t.Cleanup(e.line.Close)
	e.doctor = func() *redisconn.Line { return e.line }
	e.ear = redis.PubSubConn{Conn: sharded{redistest.Dial(e.t, url)}}
	e.listen(alive, "SSUBSCRIBE")
}

// run plays scenarios in each way, in parallel with other tests.
func run(t *testing.T, scenarios []scenario) {
	t.Helper()
	t.Parallel()
	for _, s := range scenarios {
		for _, way := range ways {
			if way == scattered && !shards() {
				continue
			}
			t.Run(s.name+string(way), func(t *testing.T) {
				t.Parallel()
				e, s := newEnv(t, redistest.URL(), s.alive), s
				if e.way = way; way == scattered {
					e.scatter(redistest.URL(), s.alive)
				}
				if way == unheard {
					e.unhear()
					s.steps = slices.Clone(s.steps) // the other ways use it, too
					for i, w := range s.steps {
						s.steps[i].heard = slices.DeleteFunc(slices.Clone(w.heard), func(m string) bool { return strings.HasPrefix(m, "done ") })
					}
				}
				e.play(s)
			})
		}
	}
}

// A way is how rounds end processes: each in full; in brief for finished tasks of the list; the
// same without observers, so that a few commands end them all; or in brief, with the scripts
// for a cluster.
type way string

const (
	wordy   way = ""
	brief   way = ", in brief"
	unheard way = ", unheard"

	scattered way = ", in a cluster"
)

// ways are the ways to try.
var ways = []way{wordy, brief, unheard, scattered}

// rewrite replaces all scripts until the test ends. The test must not run beside others.
func rewrite(t testing.TB, as func(source string) string) {
	for _, v := range Verbs() {
		was := v.script
		v.script = redisconn.NewScript(func() string { return as(source(v.Name)) })
		t.Cleanup(func() { v.script = was })
	}
}

// abridge marks the outcomes that can be sent in brief, and returns the new places of all outcomes.
func (e *env) abridge(r *Round) (places []int) {
	r.Outcomes = slices.Clone(r.Outcomes)
	for i, of := range r.Outcomes {
		o := *of
		r.Outcomes[i] = &o
		places = append(places, i)
		if e.way != wordy {
			entry, err := redis.String(e.conn.Do("HGET", e.q.Entries(), o.Process))
			o.Plain = errors.Is(err, redis.ErrNil)
			o.Added = strings.HasPrefix(entry, "a:")
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(r.Outcomes[a].Rank(), r.Outcomes[b].Rank()) })
	slices.SortStableFunc(r.Outcomes, func(a, b *Outcome) int { return cmp.Compare(a.Rank(), b.Rank()) })
	return places
}

// play seeds the keyspace, makes the calls, and compares everything after each of them.
func (e *env) play(s scenario) {
	e.t.Helper()
	e.seed(s.seed)
	before := s.seed
	for i, w := range s.steps {
		got := w.call(e)
		if got != w.want {
			e.t.Errorf("call %d answered\n  %s\nwant\n  %s", i+1, short(got), short(w.want))
		}
		after := w.state
		if after == nil {
			after = before
		}
		e.compare(i+1, after)
		if heard := e.heard(); !slices.Equal(heard, w.heard) {
			e.t.Errorf("call %d published\n  %q\nwant\n  %q", i+1, heard, w.heard)
		}
		before = after
	}
}

func (e *env) compare(call int, want state) {
	e.t.Helper()
	got := e.look()
	got.unheld(e.t, want)
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if w, ok := want[k]; !ok {
			e.t.Errorf("after call %d there is %s %s, want nothing", call, k, short(got[k]))
		} else if w != got[k] {
			e.t.Errorf("after call %d, %s is\n  %s\nwant\n  %s", call, k, short(got[k]), short(w))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[k]; !ok && want[k] != none {
			e.t.Errorf("after call %d there is no %s, want %s", call, k, short(want[k]))
		}
	}
}

func short(s string) string {
	if len(s) > 600 {
		return s[:300] + " … " + s[len(s)-300:]
	}
	return s
}

// heard returns the messages published since the last call. Messages of one connection arrive in
// order, so all come before the one that ends them.
func (e *env) heard() (all []string) {
	e.t.Helper()
	publish := "PUBLISH"
	if e.q.Scattered() {
		publish = "SPUBLISH"
	}
	e.must(e.conn.Do(publish, e.prefix+"_end", ""))
	for {
		switch m := e.ear.ReceiveWithTimeout(time.Minute).(type) {
		case redis.Message:
			of, kind, ok := strings.Cut(strings.TrimPrefix(m.Channel, e.prefix), "_{q}_")
			if !ok {
				return all
			}
			kind = strings.TrimPrefix(of+":"+kind, ":")
			for _, entry := range e.ends {
				if m.Channel == e.q.End(entry) {
					kind = "end:" + entry
				}
			}
			if kind == string(keys.KindDone) {
				all = append(all, "done "+done(m.Data))
				continue
			}
			all = append(all, kind+" "+word(string(m.Data)))
		case error:
			e.t.Fatal(m)
		}
	}
}

// done renders a message about a finished task, whose fields come in any order.
func done(message []byte) string {
	var m struct {
		WorkerID, Task           string
		Result                   *string
		TaskSize, ResultSize     int
		TaskDigest, ResultDigest string
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return err.Error()
	}
	told := m.WorkerID + " " + word(m.Task)
	if m.TaskSize > 0 {
		told = fmt.Sprintf("%s %d:%s", m.WorkerID, m.TaskSize, m.TaskDigest)
	}
	switch {
	case m.ResultSize > 0:
		told += fmt.Sprintf(" %d:%s", m.ResultSize, m.ResultDigest)
	case m.Result != nil:
		told += " " + strconv.Quote(*m.Result)
	}
	return told
}

func (e *env) must(v any, err error) any {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	return v
}

// now returns the time of Redis, in ms.
func (e *env) now() int64 {
	e.t.Helper()
	if e.still > 0 {
		return e.still
	}
	return sure(Now(e.ctx, e.line))(e.t)
}

// said renders the result of a call, or its error.
func said(err error, format string, args ...any) string {
	if err != nil {
		return refused(err)
	}
	return fmt.Sprintf(format, args...)
}

// refused renders an error: the name of a refusal, or its first word.
func refused(err error) string {
	for word, refusal := range refusals {
		if errors.Is(Refusal(err), refusal) {
			return word
		}
	}
	if errors.Is(err, errStuck) {
		return "STUCK"
	}
	if m := raised.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return err.Error()
}

// An error raised inside a script ends with its place, or begins with it: Redis 6
// and others send "ERR Error …: place: " first.
var raised = regexp.MustCompile(`^(?:ERR Error [^\n]*?: )?(WRONGTYPE|OOM) `)

// The calls of a verb are in its test file. Each returns the answer as text, without zero values.

// inFailed makes a call on the failed queue.
func inFailed(call func(*env) string) func(*env) string {
	return func(e *env) string {
		f := *e
		f.q = e.q.Failed()
		return call(&f)
	}
}

// does runs a command on a key, as another program would.
func does(command, key string, args ...any) func(*env) string {
	return func(e *env) string {
		e.must(e.conn.Do(command, append([]any{e.key(key)}, args...)...))
		return ""
	}
}

// puts replaces a key, as time or another program would.
func puts(key, value string) func(*env) string {
	return func(e *env) string {
		e.put(key, value, e.now())
		return ""
	}
}

// words collects "name=a,b" and "name".
type words struct{ all []string }

func (w *words) add(name, value string) {
	if n := len(w.all); n > 0 && strings.HasPrefix(w.all[n-1], name+"=") {
		w.all[n-1] += "," + value
		return
	}
	w.all = append(w.all, name+"="+value)
}

func (w *words) num(name string, n, none int64) {
	if n != none {
		w.add(name, strconv.FormatInt(n, 10))
	}
}

func (w *words) flag(name string, on bool) {
	if on {
		w.all = append(w.all, name)
	}
}

func (w *words) look(l Look) {
	for _, f := range l.Failed {
		held := ""
		if f.Tasks > 0 {
			held = "/" + strconv.Itoa(f.Tasks)
		}
		w.add("failed", f.Worker+held)
	}
	w.num("returned", int64(l.Returned), 0)
	w.flag("again", l.Again)
	if l.Due >= 0 {
		w.add("due", minutes(l.Due.Milliseconds()))
	}
}

func (w *words) String() string { return strings.Join(w.all, " ") }

// seq returns the numbers from up to, but not including, to, with a name before each.
func seq(name string, from, to int) []string {
	return series(to-from, func(i int) string { return fmt.Sprint(name, from+i) })
}

// series calls of with the numbers from 0 up to, but not including, n, and returns the results.
func series[T any](n int, of func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = of(i)
	}
	return all
}

// round makes a round of w1, with a lease of an hour, unless r says otherwise.
func (e *env) round(r Round) *Answer {
	e.t.Helper()
	r.Worker, r.Lease = cmp.Or(r.Worker, "w1"), cmp.Or(r.Lease, time.Hour)
	return sure(Step(e.ctx, e.line, e.q, &r))(e.t)
}

// Step makes one round.
func Step(ctx context.Context, l *redisconn.Line, q keys.Queue, round *Round) (*Answer, error) {
	return ReadStep(l.Do(ctx, NewStepper(q).Call(round))[0], round)
}

func sure[T any](v T, err error) func(testing.TB) T { return redistest.Sure(v, err) }

// In a cluster no script publishes to all nodes, unless the server supports nothing else. On one
// server the scripts are unchanged. NameOf finds both by their digests.
func TestScatteredScripts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tell := sure(files.ReadFile("lib_tell.lua"))(t)
	others := 0
	for _, v := range Verbs() {
		plain, apart := source(v.Name), apart(source(v.Name))
		is.True(!strings.Contains(plain, "SPUBLISH"))
		is.Equal(NameOf(redisconn.Digest(plain)), v.Name)
		is.Equal(NameOf(redisconn.Digest(apart)), v.Name)
		if strings.Contains(plain, "PUBLISH") || strings.Contains(plain, "NUMSUB") {
			body, uses := strings.CutPrefix(apart, string(tell))
			is.True(uses)
			is.True(!strings.Contains(body, "PUBLISH"))
			is.True(!strings.Contains(body, "NUMSUB"))
			others++
		} else {
			is.Equal(apart, plain)
		}
	}
	is.True(others > 5)
}
