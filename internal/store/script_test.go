package store

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) {
	if err := mutate(); err != nil {
		panic(err)
	}
	os.Exit(redistest.Main(m.Run))
}

// A state is a whole keyspace in short notation. Keys stand without prefix and
// queue ("process:p1", "cancel:#a"). Their values:
//
//	[a b "c d"]      list, front..back; the front is the tail in Redis
//	(p1=1 w2=+60m)   zset, by score
//	{w1=3 #a=w:0}    hash, by field
//	=5               string
//	<a b>            set
//
// followed by the TTL, if there is one ("=1 +60m"). #a is the digest of the
// payload a. Times are relative to the time of Redis and in whole minutes, so
// that they can be compared exactly however slow a test is; "clock:" is before
// the score of an idle worker that keeps the time, "aside:" before that of a task
// that was given up. The keys of the failed queue begin with "failed:".
type state map[string]string

// none is the value of a key that is not there though a test could derive it: holders.
const none = "-"

// A scenario is a seeded queue "q" and calls on it, one after the other.
type scenario struct {
	name  string
	alive []string // the workers that listen to their wake channel
	seed  state
	steps []when
}

// A when is one call: what it answers, the whole keyspace after it, and all
// that was published, in order. The state nil stands for "as before".
type when struct {
	call  func(e *env) string
	want  string
	state state
	heard []string
}

// An env is the Redis of one scenario.
type env struct {
	t      testing.TB
	ctx    context.Context
	prefix string
	q      keys.Queue
	line   *redisconn.Line
	doctor func() *redisconn.Line // of who checks
	conn   redis.Conn             // for looking
	ear    redis.PubSubConn
	still  int64 // the time, where it stands still
	way    way
	back   *Back
}

func newEnv(t testing.TB, url string, alive []string) *env {
	t.Helper()
	chosen(t)
	prefix := redistest.Prefix(t)
	dial := sure(redisconn.FromURL(redistest.Worker(t, url, prefix)))(t)
	e := &env{
		t: t, ctx: t.Context(), prefix: prefix,
		line: redisconn.NewLine(dial, time.Minute), conn: redistest.Dial(t, url),
	}
	t.Cleanup(e.line.Close)
	watched(t, url, e.prefix)
	e.doctor = sync.OnceValue(func() *redisconn.Line {
		dial := sure(redisconn.FromURL(redistest.Doctor(t, url, prefix)))(t)
		l := redisconn.NewLine(dial, time.Minute)
		t.Cleanup(l.Close)
		return l
	})
	e.q = keys.NewSpace(e.prefix).Queue("q")
	e.ear = redis.PubSubConn{Conn: redistest.Dial(t, url)}
	channels := []any{e.prefix + "_end"}
	for _, k := range []keys.Kind{keys.KindEnqueue, keys.KindDone, keys.KindCancel, keys.KindDelete, keys.KindWork} {
		channels = append(channels, e.q.Channel(k))
	}
	for _, w := range alive {
		q := e.q
		if of, ok := strings.CutPrefix(w, "failed:"); ok {
			q, w = e.q.Failed(), of
		}
		channels = append(channels, q.Wake(w))
	}
	if err := e.ear.Subscribe(channels...); err != nil {
		t.Fatal(err)
	}
	for range channels {
		if _, ok := e.ear.Receive().(redis.Subscription); !ok {
			t.Fatal("the subscription was not confirmed")
		}
	}
	return e
}

func run(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		for _, way := range []way{wordy, brief, unheard} {
			t.Run(s.name+string(way), func(t *testing.T) {
				t.Parallel()
				e, s := newEnv(t, redistest.URL(), s.alive), s
				if e.way = way; way == unheard {
					if err := e.ear.Unsubscribe(e.q.Channel(keys.KindDone)); err != nil {
						t.Fatal(err)
					}
					e.ear.Receive()
					s.steps = slices.Clone(s.steps) // the others have it, too
					for i, w := range s.steps {
						s.steps[i].heard = slices.DeleteFunc(slices.Clone(w.heard), func(m string) bool { return strings.HasPrefix(m, "done ") })
					}
				}
				e.play(s, nil)
			})
		}
	}
}

// A way is how rounds end processes: each in full; those of the list that finish
// in brief; the same, and nobody hears of it, so that few commands do for all.
type way string

const (
	wordy   way = ""
	brief   way = ", in brief"
	unheard way = ", unheard"
)

// abridge says in brief what can be said so, and returns where the outcomes are.
func (e *env) abridge(r *Round) (places []int) {
	r.Outcomes = slices.Clone(r.Outcomes)
	for i, of := range r.Outcomes {
		o := *of
		r.Outcomes[i] = &o
		places = append(places, i)
		if e.way != wordy {
			entry, err := redis.Bool(e.conn.Do("HEXISTS", e.q.Entries(), o.Process))
			o.Plain = !entry && err == nil
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(r.Outcomes[a].Rank(), r.Outcomes[b].Rank()) })
	slices.SortStableFunc(r.Outcomes, func(a, b *Outcome) int { return cmp.Compare(a.Rank(), b.Rank()) })
	return places
}

// play seeds, makes the calls and compares all there is after each of them.
func (e *env) play(s scenario, seeded func()) {
	e.t.Helper()
	e.seed(s.seed)
	if seeded != nil {
		seeded()
	}
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

// heard is what was published since the last time. Messages of one connection
// arrive in order, so all came before the one that ends them.
func (e *env) heard() (all []string) {
	e.t.Helper()
	if _, err := e.conn.Do("PUBLISH", e.prefix+"_end", ""); err != nil {
		e.t.Fatal(err)
	}
	for {
		switch m := e.ear.ReceiveWithTimeout(time.Minute).(type) {
		case redis.Message:
			of, kind, ok := strings.Cut(strings.TrimPrefix(m.Channel, e.prefix), "_{q}_")
			if !ok {
				return all
			}
			kind = strings.TrimPrefix(of+":"+kind, ":")
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

// done renders a message about a finished task: its fields come in any order.
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

// digests maps the digests of all payloads whose digest tests spell.
var digests = func() map[string]string {
	m := map[string]string{}
	for c := 'a'; c <= 'z'; c++ {
		m[digest(string(c))] = "#" + string(c)
	}
	for i := range 3000 {
		m[digest(fmt.Sprint("t", i))] = fmt.Sprint("#t", i)
	}
	return m
}()

func digest(payload string) string {
	sum := sha1.Sum([]byte(payload))
	return hex.EncodeToString(sum[:])
}

func name(s string) string {
	if len(s) > 41 && s[40] == ':' && digests[s[:40]] != "" { // a digest and an entry
		return digests[s[:40]] + ":" + word(s[41:])
	}
	return cmp.Or(digests[s], word(s))
}

// undigest is the full form of a name that begins with a digest.
func undigest(s string) string {
	d, ok := strings.CutPrefix(s, "#")
	if !ok {
		return s
	}
	payload, entry, ok := strings.Cut(d, ":")
	if !ok {
		return digest(payload)
	}
	return digest(payload) + ":" + entry
}

var plain = regexp.MustCompile(`^[\w:.#-]+$`)

func word(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// key is the full form of a key in short notation.
func (e *env) key(k string) string {
	prefix := e.prefix + ":"
	if of, ok := strings.CutPrefix(k, "failed:"); ok {
		prefix, k = prefix+"failed:", of
	}
	kind, rest, ok := strings.Cut(k, ":")
	kind = prefix + kind + ":{q}"
	if !ok {
		return kind
	}
	return kind + ":" + undigest(rest)
}

func (e *env) must(v any, err error) any {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	return v
}

// now is the time of Redis, in ms.
func (e *env) now() int64 {
	e.t.Helper()
	if e.still > 0 {
		return e.still
	}
	return sure(Now(e.ctx, e.line))(e.t)
}

// The scores of a lease that does not end, of what was given up, and of who
// keeps the time.
const (
	never = 9007199254740991
	aside = 1 << 52
	clock = 1 << 43
)

// look renders the whole keyspace.
func (e *env) look() state {
	e.t.Helper()
	all := state{}
	now := e.now()
	for _, k := range redistest.Keys(e.t, e.conn, e.prefix) {
		kind, rest, _ := strings.Cut(strings.TrimPrefix(k, e.prefix+":"), ":{q}")
		if rest != "" {
			kind += ":" + name(rest[1:])
		}
		all[kind] = e.value(k, now)
	}
	return all
}

func (e *env) value(k string, now int64) (v string) {
	e.t.Helper()
	list := func(command string, args ...any) []string {
		return sure(redis.Strings(e.conn.Do(command, append([]any{k}, args...)...)))(e.t)
	}
	var words []string
	switch kind, _ := redis.String(e.conn.Do("TYPE", k)); kind {
	case "list":
		for _, p := range slices.Backward(list("LRANGE", 0, -1)) {
			words = append(words, word(p))
		}
		v = "[" + strings.Join(words, " ") + "]"
	case "zset":
		for pair := range slices.Chunk(list("ZRANGE", 0, -1, "WITHSCORES"), 2) {
			words = append(words, name(pair[0])+"="+score(pair[1], now))
		}
		// Times that read the same differ by milliseconds: those go by name.
		slices.SortStableFunc(words, func(a, b string) int {
			_, x, _ := strings.Cut(a, "=")
			_, y, _ := strings.Cut(b, "=")
			if x != y || x == "" || !strings.HasSuffix(x, "m") && !strings.HasSuffix(x, "now") && x != "0" {
				return 0
			}
			return strings.Compare(a, b)
		})
		v = "(" + strings.Join(words, " ") + ")"
	case "hash":
		for pair := range slices.Chunk(list("HGETALL"), 2) {
			words = append(words, name(pair[0])+"="+field(pair[0], pair[1], now))
		}
		slices.Sort(words)
		v = "{" + strings.Join(words, " ") + "}"
	case "set":
		v = "<" + strings.Join(slices.Sorted(slices.Values(list("SMEMBERS"))), " ") + ">"
	case "string":
		s := sure(redis.String(e.conn.Do("GET", k)))(e.t)
		v = "=" + s
	}
	ttl := sure(redis.Int64(e.conn.Do("PTTL", k)))(e.t)
	if ttl > 0 {
		v += " " + minutes(ttl)
	}
	return v
}

// timed are the fields of a hash whose values are times.
var timed = map[string]bool{"due": true, "low": true, "high": true, "at": true}

func field(name, value string, now int64) string {
	switch {
	case timed[name]:
		return score(value, now)
	case value == "":
		return ""
	}
	return word(value)
}

// score renders tokens and marks as they are, times as relative to now.
func score(s string, now int64) string {
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return s
	case f == never:
		return "never"
	case f < 1e12:
		return strconv.FormatInt(int64(f), 10)
	case f == aside:
		return "aside:0"
	case f >= aside:
		return "aside:" + minutes(int64(f)-aside-now)
	case f >= clock:
		return "clock:" + minutes(int64(f)-clock-now)
	}
	return minutes(int64(f) - now)
}

func minutes(ms int64) string {
	m := int64(math.Round(float64(ms) / 60000))
	if m == 0 {
		return "now"
	}
	return fmt.Sprintf("%+dm", m)
}

// seed writes a keyspace.
func (e *env) seed(s state) {
	e.t.Helper()
	now := e.now()
	for k, v := range s.held() {
		if v != none {
			e.put(k, v, now)
		}
	}
}

var (
	running = regexp.MustCompile(`\bprocess=(\S+?)[ }]`)
	begun   = regexp.MustCompile(`[( ](\S+?)=`)
)

// holder is who holds a process in a state; "" if nobody does.
func (s state) holder(queue, process string) string {
	for k, v := range s {
		if worker, ok := strings.CutPrefix(k, queue+"working:"); ok && strings.HasPrefix(v, "(") {
			for _, m := range begun.FindAllStringSubmatch(v, -1) {
				if m[1] == process {
					return worker
				}
			}
		}
	}
	return ""
}

// queueOf is what a key in short notation begins with: "failed:", or nothing.
func queueOf(k string) string {
	if strings.HasPrefix(k, "failed:") {
		return "failed:"
	}
	return ""
}

// runs reports whether a key is an entry that runs, and by whom.
func (s state) runs(k string) (worker string, ok bool) {
	m := running.FindStringSubmatch(s[k])
	if m == nil || !strings.HasPrefix(k, queueOf(k)+"keyed:") {
		return "", false
	}
	worker = s.holder(queueOf(k), m[1])
	return worker, worker != ""
}

// held completes a state with what says who holds something, in so far as it does not:
// holders, and the field holder of entries that run.
func (s state) held() state {
	all := maps.Clone(s)
	for _, queue := range []string{"", "failed:"} {
		var holders []string
		for _, k := range slices.Sorted(maps.Keys(s)) {
			if worker, ok := strings.CutPrefix(k, queue+"working:"); ok && strings.HasPrefix(s[k], "(") {
				holders = append(holders, worker+"=0")
			}
		}
		if _, said := s[queue+"holders"]; !said && holders != nil {
			all[queue+"holders"] = "(" + strings.Join(holders, " ") + ")"
		}
	}
	for k, v := range s {
		if worker, ok := s.runs(k); ok && !strings.Contains(v, "holder=") {
			all[k] = "{holder=" + worker + " " + v[1:]
		}
	}
	return all
}

// unheld takes from a state that was found what want does not name and can be derived.
func (s state) unheld(t testing.TB, want state) {
	t.Helper()
	for _, queue := range []string{"", "failed:"} {
		if _, said := want[queue+"holders"]; said {
			continue
		}
		var holders, working []string
		for _, m := range begun.FindAllStringSubmatch(s[queue+"holders"], -1) {
			holders = append(holders, m[1])
		}
		for k, v := range s {
			if worker, ok := strings.CutPrefix(k, queue+"working:"); ok && strings.HasPrefix(v, "(") {
				working = append(working, worker)
			}
		}
		slices.Sort(holders)
		slices.Sort(working)
		if !slices.Equal(holders, working) {
			t.Errorf("%q hold something, and %q are known to", working, holders)
		}
		delete(s, queue+"holders")
	}
	for k, v := range s {
		if worker, ok := s.runs(k); ok && !strings.Contains(want[k], "holder=") {
			s[k] = strings.Replace(v, "holder="+worker+" ", "", 1)
		}
	}
}

func (e *env) put(k, v string, now int64) {
	e.t.Helper()
	k = e.key(k)
	e.must(e.conn.Do("DEL", k))
	if rest, ok := strings.CutPrefix(v, "="); ok {
		e.must(e.conn.Do("SET", k, rest))
		return
	}
	command := map[byte]string{'[': "LPUSH", '(': "ZADD", '{': "HSET", '<': "SADD"}[v[0]]
	end := strings.LastIndexAny(v, "])}>")
	args := []any{k}
	for _, w := range strings.Fields(v[1:end]) {
		field, value, pair := strings.Cut(w, "=")
		timed := timed[field] && v[0] == '{'
		field = undigest(field)
		switch {
		case !pair:
			args = append(args, field)
		case timed:
			args = append(args, field, at(value, now))
		case v[0] == '(':
			args = append(args, at(value, now), field)
		default:
			args = append(args, field, value)
		}
	}
	for part := range slices.Chunk(args[1:], 5000) {
		e.must(e.conn.Do(command, append([]any{k}, part...)...))
	}
	if ttl := strings.TrimSpace(v[end+1:]); ttl != "" {
		e.must(e.conn.Do("PEXPIRE", k, at(ttl, 0)))
	}
}

// at is the score that a notation stands for.
func at(s string, now int64) int64 {
	if s == "now" {
		return now
	}
	if s == "never" {
		return never
	}
	if rest, ok := strings.CutPrefix(s, "aside:"); ok {
		return at(rest, now) + aside
	}
	if rest, ok := strings.CutPrefix(s, "clock:"); ok {
		return at(rest, now) + clock
	}
	if m, ok := strings.CutSuffix(s, "m"); ok {
		n, err := strconv.ParseInt(m, 10, 64)
		if err != nil {
			panic(err)
		}
		return now + n*60000
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// refused renders an error: the name of a refusal, or its first word.
func refused(err error) string {
	switch {
	case errors.Is(err, ErrEvicted):
		return "EVICTED"
	case errors.Is(err, ErrStale):
		return "STALE"
	case errors.Is(err, ErrDuplicate):
		return "DUPLICATE"
	case errors.Is(err, ErrUnmoved):
		return "UNMOVED"
	case errors.Is(err, errStuck):
		return "STUCK"
	}
	if m := raised.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return err.Error()
}

// An error raised inside a script has the place behind it, or before it: Redis 6
// and others say "ERR Error …: place: " first.
var raised = regexp.MustCompile(`^(?:ERR Error [^\n]*?: )?(WRONGTYPE|OOM) `)

// The calls of a verb are in its test file. Each returns what was answered, in words;
// what is zero is left out.

// inFailed makes a call on the failed queue.
func inFailed(call func(*env) string) func(*env) string {
	return func(e *env) string {
		f := *e
		f.q = e.q.Failed()
		return call(&f)
	}
}

// does is something that somebody else does: a command on a key.
func does(command, key string, args ...any) func(*env) string {
	return func(e *env) string {
		e.must(e.conn.Do(command, append([]any{e.key(key)}, args...)...))
		return ""
	}
}

// puts replaces a key, as time or somebody else would.
func puts(key, value string) func(*env) string {
	return func(e *env) string {
		e.put(key, value, e.now())
		return ""
	}
}

// words gathers "name=a,b" and "name".
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

// with is a state with some keys changed; the value "" removes one.
func (s state) with(kv ...string) state {
	c := maps.Clone(s)
	for i := 0; i < len(kv); i += 2 {
		if c[kv[i]] = kv[i+1]; kv[i+1] == "" {
			delete(c, kv[i])
		}
	}
	return c
}

// seq is the words from up to (not including) to, with a name before each.
func seq(name string, from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(name, i))
	}
	return all
}

// Step makes one round.
func Step(ctx context.Context, l *redisconn.Line, q keys.Queue, round *Round) (*Answer, error) {
	return ReadStep(l.Do(ctx, StepCall(q, round))[0], round)
}

func sure[T any](v T, err error) func(testing.TB) T { return redistest.Sure(v, err) }
