// Package scripts_test runs the scripts of docs/protocol.md on Redis.
package scripts_test

import (
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// A scenario is what is done with a queue, in order, and what each step answers. A step is words:
//
//   - a command, in capitals, with the kind of its key: LPUSH queues a b
//   - a script, with some of the arguments that its header names, and its list: finish worker=v plain=1 v.1.9.1 7
//   - listen, and then heard: which channels and messages were published since the last heard
//   - commands and a script: how many commands it runs
//
// The keys of the failed queue and the scripts on it begin with "failed.". In a word, <text> stands for the digest of a
// text, @9 for nine times x, ~ for a blank, now for Redis's time in ms and now+9 for later. Two quotes are the empty
// word. In an answer, now stands for any time within ten seconds, and far for a later one; … stands for a number above 0, and *
// for any answer but an error.
type scenario struct {
	shows string
	steps [][2]string
}

// defaults are the arguments that a step needn't name. All others are 0.
var defaults = map[string]string{
	"worker": "w", "lease": "3000", "stamp": "9", "grace": "1000", "max crashes": "3", "max failed": "1000", "idle": "1",
	"round": "1", "who": "", "target": "", "text": "", "nonce": "", "after": "",
}

func play(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.shows, func(t *testing.T) { newQueue(t, redistest.URL()).play(s.steps) })
	}
}

// A queue is a queue of its own on a server.
type queue struct {
	testing.TB
	conn  redis.Conn
	ear   *redis.PubSubConn
	url   string
	name  string                     // "{q1}"
	edit  func(source string) string // changes scripts before they run; nil: as they are
	quiet bool                       // errors are answers like all others
}

var queues atomic.Int64

func newQueue(t testing.TB, url string) *queue {
	redistest.OneServer(t, redistest.OwnServer)
	return &queue{TB: t, conn: redistest.Dial(t, url), url: url, name: fmt.Sprintf("{q%d}", queues.Add(1))}
}

func (q *queue) play(steps [][2]string) {
	q.Helper()
	for _, s := range steps {
		got, want := q.do(s[0]), digests(s[1])
		like := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", `[1-9]\d*`) + "$")
		if !like.MatchString(got) && (want != "*" || got[0] == '!') {
			q.Fatalf("%s\n got  %s\n want %s", s[0], got, want)
		}
	}
}

// do makes a step, and returns its answer as text.
func (q *queue) do(step string) string {
	q.Helper()
	words := strings.Fields(step)
	for i, w := range words {
		words[i] = q.expand(w)
	}
	switch words[0] {
	case "listen":
		q.ear = &redis.PubSubConn{Conn: redistest.Dial(q, q.url)}
		redistest.Must(q, q.ear.PSubscribe("*"+q.name+"*"))
		q.ear.Receive()
		return ""
	case "heard":
		return q.heard()
	case "commands":
		before := q.calls()
		q.run(words[1], words[2:])
		return strconv.Itoa(q.calls() - before - 2) // the script itself, and INFO
	}
	if head := strings.TrimPrefix(words[0], "failed."); strings.ToUpper(head) != head {
		return q.show(q.run(words[0], words[1:]))
	}
	args := redis.Args{q.key(words[1])}.AddFlat(words[2:])
	if words[0] == "EXISTS" || words[0] == "DEL" {
		for i, kind := range words[1:] {
			args[i] = q.key(kind)
		}
	}
	return q.show(q.conn.Do(words[0], args...))
}

// key returns the name of a key: of a kind, or of a kind and a suffix, as in working:w.
func (q *queue) key(kind string) string {
	kind, isFailed := strings.CutPrefix(kind, "failed.")
	kind, suffix, more := strings.Cut(kind, ":")
	key := map[bool]string{false: "worqr:", true: "worqr:failed:"}[isFailed] + kind + ":" + q.name
	if more {
		key += ":" + suffix
	}
	return key
}

var argument = regexp.MustCompile(`(?m)^-- ARGV\[(\d+)\] +(\w+(?: \w+)?)(?:  |$)`)

// source returns a script with its fragments.
func (q *queue) source(name string) string {
	i := slices.IndexFunc(store.Verbs(), func(v *store.Verb) bool { return v.Name == name })
	return store.Verbs()[i].Source()
}

// run runs a script.
func (q *queue) run(name string, words []string) (any, error) {
	q.Helper()
	name, onFailed := strings.CutPrefix(name, "failed.")
	of := map[bool]string{true: "failed."}[onFailed]
	source := q.source(name)
	if q.edit != nil {
		source = q.edit(source)
	}
	if name == "enqueue" {
		return q.enqueue(source, words)
	}
	prefix := map[bool]string{false: "worqr", true: "worqr:failed"}[onFailed]
	args := redis.Args{source, 2, q.key(of + "state"), q.key(of + "none"), prefix, q.name}
	given := map[string]string{}
	known := argument.FindAllStringSubmatch(source, -1)
	list := slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		arg, value, ok := strings.Cut(w, "=")
		arg = strings.ReplaceAll(arg, "-", " ")
		ok = ok && slices.ContainsFunc(known, func(k []string) bool { return k[2] == arg })
		if ok {
			given[arg] = value
		}
		return ok
	})
	n := 2
	for _, k := range known {
		if k[1] != strconv.Itoa(n+1) {
			continue // of a fragment
		}
		value, ok := given[k[2]]
		if !ok {
			if value, ok = defaults[k[2]]; !ok {
				value = "0"
			}
		}
		args, n = args.Add(value), n+1
	}
	return q.conn.Do("EVAL", args.AddFlat(list)...)
}

// enqueue runs the script that has keys of its own.
func (q *queue) enqueue(source string, words []string) (any, error) {
	nonce, window := "", "0"
	for len(words) > 0 && strings.Contains(words[0], "=") {
		of, value, _ := strings.Cut(words[0], "=")
		if words = words[1:]; of == "nonce" {
			nonce = value
		} else {
			window = value
		}
	}
	args := redis.Args{source, 5, q.key("queues"), q.key("idle"), q.key("workers"), q.key("once:" + nonce), q.key("none")}
	return q.conn.Do("EVAL", args.Add("worqr_"+q.name+"_", window).AddFlat(words)...)
}

var (
	digest = regexp.MustCompile(`<([^>]+)>`)
	long   = regexp.MustCompile(`\B@(\d+)`)
	when   = regexp.MustCompile(`\bnow([+-]\d+)?\b`)
)

func (q *queue) now() int64 {
	t := redistest.Sure(redis.Int64s(q.conn.Do("TIME")))(q)
	return t[0]*1000 + t[1]/1000
}

func digests(words string) string {
	return digest.ReplaceAllStringFunc(words, func(m string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(longs(m[1:len(m)-1])))) })
}

func longs(word string) string {
	return long.ReplaceAllStringFunc(word, func(m string) string {
		n, _ := strconv.Atoi(m[1:])
		return strings.Repeat("x", n)
	})
}

func (q *queue) expand(word string) string {
	if word == "''" {
		return ""
	}
	word = longs(digests(strings.ReplaceAll(word, "~", " ")))
	return when.ReplaceAllStringFunc(word, func(m string) string {
		later, _ := strconv.ParseInt(m[len("now"):], 10, 64)
		return strconv.FormatInt(q.now()+later, 10)
	})
}

var times = regexp.MustCompile(`\b1\d{12}(\d{3})?\b`) // in ms, or µs

// show writes an answer as text: lists in brackets, nil as -, an error as its first word.
func (q *queue) show(reply any, err error) string {
	if err != nil {
		if !q.quiet {
			q.Logf("%v", err)
		}
		if strings.Contains(err.Error(), "WRONGTYPE") {
			return "!WRONGTYPE"
		}
		return "!" + strings.Fields(err.Error())[0]
	}
	text := fmt.Sprint(reply)
	switch r := reply.(type) {
	case nil:
		return "-"
	case []byte:
		text = string(r)
	case []any:
		all := make([]string, len(r))
		for i, v := range r {
			all[i] = q.show(v, nil)
			if _, ok := v.([]any); ok {
				all[i] = "[" + all[i] + "]"
			}
		}
		return strings.Join(all, " ")
	}
	if len(text) > 1000 {
		return fmt.Sprint("@", len(text))
	}
	if text == "" {
		return "''"
	}
	return times.ReplaceAllStringFunc(text, func(at string) string {
		ms, _ := strconv.ParseInt(at[:13], 10, 64)
		switch away := ms - q.now(); {
		case away > 10_000:
			return "far"
		case away > -10_000:
			return "now"
		}
		return at
	})
}

// heard returns what was published since the last time.
func (q *queue) heard() string {
	q.do("PUBLISH end ''")
	var all []string
	for {
		m, ok := q.ear.Receive().(redis.Message)
		if !ok || m.Channel == q.key("end") {
			return strings.Join(all, " ")
		}
		channel := m.Channel[strings.LastIndex(m.Channel, "_")+1:]
		event := map[string]any{}
		if json.Unmarshal(m.Data, &event) == nil {
			m.Data, _ = json.Marshal(event) // in order
		}
		all = append(all, strings.TrimRight(channel+" "+string(m.Data), " "))
	}
}

// calls returns how many commands the server has run.
func (q *queue) calls() (n int) {
	info := redistest.Sure(redis.String(q.conn.Do("INFO", "commandstats")))(q)
	for _, m := range regexp.MustCompile(`:calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		calls, _ := strconv.Atoi(m[1])
		n += calls
	}
	return n
}
