package store

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
)

// A state is a whole keyspace in short notation. Keys are without prefix and
// queue ("process:p1", "cancel:#a"). Their values:
//
//	[a b "c d"]      list, front..back; the front is the tail in Redis
//	(p1=1 w2=+60m)   zset, by score
//	{w1=3 #a=w:0}    hash, by field
//	=5               string
//	<a b>            set
//	|1-7-a/0=x|      stream of added tasks: id 1-7, salt a, card 0, payload x. An id with the
//	                 time of Redis shows the time, and its sequence from the first one seen
//
// followed by the TTL, if there is one ("=1 +60m"). #a is the digest of the payload a. Times are
// relative to the time of Redis and in whole minutes, so that they can be compared exactly however
// slow a test is. "clock:" precedes the score of an idle worker that keeps the time, "aside:" that of
// a task set aside, and "drift:" the drift. Members of ages are times. The keys of the failed queue
// begin with "failed:". The key of an added task is "@" and its id and salt, and "#@" stands for the
// digest of its entry.
type state map[string]string

// none is the value of a missing key that would otherwise be derived: holders.
const none = "-"

// with returns a state with some keys changed; the value "" removes a key.
func (s state) with(kv ...string) state {
	c := maps.Clone(s)
	for i := 0; i < len(kv); i += 2 {
		if c[kv[i]] = kv[i+1]; kv[i+1] == "" {
			delete(c, kv[i])
		}
	}
	return c
}

// digests maps the digests of the payloads that tests use to their short notation.
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
	if len(s) > 43 && s[40] == ':' && s[:40] == digest(s[41:]) {
		return "#@:" + word(s[41:])
	}
	if len(s) > 41 && s[40] == ':' && digests[s[:40]] != "" { // a digest and an entry
		return digests[s[:40]] + ":" + word(s[41:])
	}
	return cmp.Or(digests[s], word(s))
}

// undigest returns the full form of a name that begins with a digest.
func undigest(s string) string {
	if entry, ok := strings.CutPrefix(s, "#@:"); ok {
		return digest(entry) + ":" + entry
	}
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

func word(s string) string {
	quoted := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_:.#-", r))
	}
	if s == "" || strings.ContainsFunc(s, quoted) {
		return strconv.Quote(s)
	}
	return s
}

// key returns the full form of a key in short notation.
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
	return kind + ":" + undigest(spelled(rest))
}

// The scores of a lease that never expires, of a task set aside, and of the worker that
// keeps the time.
const (
	never = 9007199254740991
	aside = 1 << 52
	clock = 1 << 43
)

// everything returns the keys of a namespace, each with its type, value and TTL. One call is much
// quicker than several for each key.
var everything = redis.NewScript(0, `
local read = {list = {'LRANGE', 0, -1}, zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, hash = {'HGETALL'}, set = {'SMEMBERS'},
  stream = {'XRANGE', '-', '+'}, string = {'GET'}}
local all = {}
for i, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
  local kind = redis.call('TYPE', key).ok
  local value = redis.call(read[kind][1], key, unpack(read[kind], 2))
  all[i] = {key, kind, value, redis.call('PTTL', key)}
end
return all`)

// look renders the whole keyspace.
func (e *env) look() state {
	e.t.Helper()
	all := state{}
	now := e.now()
	for _, found := range sure(redis.Values(everything.Do(e.conn, e.prefix)))(e.t) {
		var k, kind string
		var value any
		var ttl int64
		sure(redis.Scan(found.([]any), &k, &kind, &value, &ttl))(e.t)
		of, rest, _ := strings.Cut(strings.TrimPrefix(k, e.prefix+":"), ":{q}")
		if rest != "" {
			of += ":" + name(rest[1:])
		}
		all[of] = e.value(k, kind, value, now)
		if ttl > 0 {
			all[of] += " " + minutes(ttl)
		}
	}
	return e.shortened(all)
}

func (e *env) value(k, kind string, value any, now int64) (v string) {
	e.t.Helper()
	list := func() []string { return sure(redis.Strings(value, nil))(e.t) }
	var words []string
	switch kind {
	case "list":
		for _, p := range slices.Backward(list()) {
			words = append(words, word(p))
		}
		v = "[" + strings.Join(words, " ") + "]"
	case "zset":
		for pair := range slices.Chunk(list(), 2) {
			member := name(pair[0])
			if k == e.q.Ages() && member != ageDrift {
				member = score(member, now)
			}
			words = append(words, member+"="+score(pair[1], now))
		}
		// Times that look equal may differ by milliseconds: sort those by name.
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
		for pair := range slices.Chunk(list(), 2) {
			words = append(words, name(pair[0])+"="+field(pair[0], pair[1], now))
		}
		slices.Sort(words)
		v = "{" + strings.Join(words, " ") + "}"
	case "set":
		v = "<" + strings.Join(slices.Sorted(slices.Values(list())), " ") + ">"
	case "stream":
		for _, item := range sure(redis.Values(value, nil))(e.t) {
			pair := item.([]any)
			field := sure(redis.Strings(pair[1], nil))(e.t)
			salt, card, _ := keys.SplitField(field[0])
			words = append(words, fmt.Sprintf("%s-%s/%s=%s", pair[0], salt, card, word(field[1])))
		}
		v = "|" + strings.Join(words, " ") + "|"
	case "string":
		v = "=" + sure(redis.String(value, nil))(e.t)
		if m := recorded.FindStringSubmatch(v); m != nil {
			v = m[1] + score(m[2], now) + m[3]
		}
	}
	return v
}

// recorded matches the record of a task's end, with its time in milliseconds.
var recorded = regexp.MustCompile(`(?s)^(=[a-z]+:)(\d{13})\d{3}(:\d+:.*)$`)

// timed has the fields of a hash whose values are times.
var timed = map[string]bool{"due": true, "low": true, "high": true, "at": true, "planned": true, "turn": true, "took": true, "passed": true, "more": true, "since": true, "times": true, "last": true, "before": true}

// since matches the time when a task was put, in its card.
var since = regexp.MustCompile(`s13:\d{13}`)

func field(name, value string, now int64) string {
	switch {
	case name == "times" || name == "last" || name == "before" || name == "since" || name == "from":
		return clocks.ReplaceAllStringFunc(strings.ReplaceAll(value, " ", ","), func(ms string) string { return score(ms[:13], now) })
	case timed[name] && (name != "planned" || len(value) == 13): // that of a late id is left unchanged
		return score(value, now)
	case value == "":
		return ""
	case name == "card":
		value = since.ReplaceAllString(value, "s13:now")
	}
	return word(value)
}

// clocks matches current times in a text, in ms or µs.
var clocks = regexp.MustCompile(`\d{13,16}`)

// score renders tokens and marks unchanged, and times relative to now.
func score(s string, now int64) string {
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return s
	case f == never:
		return "never"
	case f < -1e12:
		return fmt.Sprint("drift:", int64(f)+ageBase)
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
			e.send(k, v, now)
		}
	}
	e.written()
}

var begun = regexp.MustCompile(`[( ](\S+?)=`)

// holder returns the worker that holds a process in a state; "" if none does.
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

// queueOf returns the queue part of a key in short notation: "failed:" or "".
func queueOf(k string) string {
	if strings.HasPrefix(k, "failed:") {
		return "failed:"
	}
	return ""
}

// runs reports whether a key is a running entry, and returns its worker.
func (s state) runs(k string) (worker string, ok bool) {
	if !strings.HasPrefix(k, queueOf(k)+"keyed:") {
		return "", false
	}
	_, rest, running := strings.Cut(s[k], "process=")
	end := strings.IndexAny(rest, " }")
	if !running || end <= 0 {
		return "", false
	}
	worker = s.holder(queueOf(k), rest[:end])
	return worker, worker != ""
}

// held adds the keys and fields that say which worker holds what, unless the state has them: holders,
// and the field holder of running entries.
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

// unheld removes from s, a state read from Redis, the keys and fields that can be derived and that want
// doesn't have.
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
			t.Errorf("%q hold tasks, and holders has %q", working, holders)
		}
		delete(s, queue+"holders")
	}
	if _, said := want["ages"]; !said {
		delete(s, "ages") // every beat writes it if the list isn't empty
	}
	for k, v := range s {
		if worker, ok := s.runs(k); ok && !strings.Contains(want[k], "holder=") {
			s[k] = strings.Replace(v, "holder="+worker+" ", "", 1)
		}
	}
}

// put writes a key.
func (e *env) put(k, v string, now int64) {
	e.t.Helper()
	e.send(k, v, now)
	e.written()
}

// written waits for what was sent.
func (e *env) written() {
	e.t.Helper()
	replies, _ := e.must(e.conn.Do("")).([]any)
	for _, reply := range replies {
		if err, failed := reply.(redis.Error); failed {
			e.t.Fatal(err)
		}
	}
}

// send sends the commands that write a key.
func (e *env) send(k, v string, now int64) {
	e.t.Helper()
	k = e.key(k)
	e.must(nil, e.conn.Send("DEL", k))
	if rest, ok := strings.CutPrefix(v, "="); ok {
		e.must(nil, e.conn.Send("SET", k, rest))
		return
	}
	v = spelled(v)
	if v[0] == '|' {
		for _, item := range strings.Fields(strings.Trim(v, "|")) {
			place, rest, _ := strings.Cut(item, "/")
			card, payload, _ := strings.Cut(rest, "=")
			i := strings.LastIndexByte(place, '-')
			e.must(nil, e.conn.Send("XADD", k, place[:i], place[i+1:]+card, payload))
		}
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
		case field == "times" || field == "last" || field == "before" || field == "since":
			unit := ""
			if field == "before" || field == "since" {
				unit = "000" // µs
			}
			args = append(args, field, strings.ReplaceAll(relative.ReplaceAllStringFunc(value, func(s string) string {
				return fmt.Sprint(at(s, now)) + unit
			}), ",", " "))
		case timed:
			args = append(args, field, at(value, now))
		case v[0] == '(':
			if k == e.q.Ages() && field != ageDrift {
				field = fmt.Sprint(at(field, now))
			}
			args = append(args, at(value, now), field)
		default:
			args = append(args, field, value)
		}
	}
	for part := range slices.Chunk(args[1:], 5000) {
		e.must(nil, e.conn.Send(command, append([]any{k}, part...)...))
	}
	if ttl := strings.TrimSpace(v[end+1:]); ttl != "" {
		e.must(nil, e.conn.Send("PEXPIRE", k, at(ttl, 0)))
	}
}

// relative matches times in short notation.
var relative = regexp.MustCompile(`\bnow\b|[+-]\d+m\b`)

// at returns the score of a time in short notation.
func at(s string, now int64) int64 {
	if s == "now" {
		return now
	}
	if s == "never" {
		return never
	}
	for mark, n := range map[string]int64{"aside:": aside, "clock:": clock, "drift:": -ageBase} {
		if rest, ok := strings.CutPrefix(s, mark); ok {
			return at(rest, now) + n
		}
	}
	m, relative := strings.CutSuffix(s, "m")
	n, err := strconv.ParseInt(m, 10, 64)
	if err != nil {
		panic(err)
	}
	if relative {
		return now + n*60000
	}
	return n
}
