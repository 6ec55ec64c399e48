package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/integration/spec/rules"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A front stands between a fleet and Redis, and lets one request after the other
// through. Whatever a script answers, and whatever Redis holds afterwards, must be what
// the specification answers and holds, and break no rule.
type front struct {
	door    *server.Server
	prefix  string
	control redis.Conn

	mu    sync.Mutex // protects the fields below
	lines map[*server.Peer]*line
	heard map[string]int // how many hear a channel
	now   *spec.Store    // what Redis holds
	calls []call
	wrong []string
}

// A call of a script, and its reply.
type call struct {
	store.Call
	reply any
}

// A line is the connection of one client.
type line struct {
	client    *server.Peer
	redis     redis.Conn
	ear       *redis.PubSubConn // once it hears channels
	heard     []string
	confirmed chan bool
}

func newFront(t testing.TB) *front {
	t.Helper()
	redistest.OneServer(t, redistest.OwnProxy)
	door := sure(server.NewServer("127.0.0.1:0"))(t)
	f := &front{door: door, prefix: redistest.Prefix(t), control: redistest.Conn(t), lines: map[*server.Peer]*line{}, heard: map[string]int{}, now: spec.New()}
	door.SetPreHook(func(p *server.Peer, name string, args ...string) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.serve(p, name, args)
		return true
	})
	t.Cleanup(door.Close)
	return f
}

// url is as whom and where a peer is to connect.
func (f *front) url(as string) string {
	u, err := url.Parse(as)
	if err != nil {
		panic(err) // it is redistest's
	}
	u.Host = f.door.Addr().String()
	return u.String()
}

func (f *front) serve(p *server.Peer, name string, args []string) {
	l := f.lines[p]
	if l == nil {
		c, err := redis.DialURL(redistest.URL())
		if err != nil {
			p.WriteError("ERR " + err.Error())
			return
		}
		l = &line{client: p, redis: c, confirmed: make(chan bool, 1)}
		f.lines[p] = l
		p.OnDisconnect(func() { f.hangUp(l) })
	}
	switch {
	case name == "SUBSCRIBE" || name == "UNSUBSCRIBE":
		f.listen(l, name == "SUBSCRIBE", args)
	case l.ear != nil && name == "PING":
		_ = l.ear.Ping(strings.Join(args, "")) // relay answers
	case name == "EVALSHA" || name == "EVAL" || plain[name]:
		spec.Write(p, f.compare(l, name, args))
	default:
		spec.Write(p, l.do(name, args))
	}
}

func (l *line) do(name string, args []string) any {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	v, err := l.redis.Do(name, all...)
	if l.redis.Err() != nil {
		l.client.Close()
	}
	return spec.Reply(v, err)
}

// plain are the commands that change something without a script: long lists are filled
// with them, and registrations go.
var plain = map[string]bool{"LPUSH": true, "DEL": true, "UNLINK": true, "SREM": true}

// compare has Redis and the specification carry out a request, at each time that it may
// have been.
func (f *front) compare(l *line, name string, args []string) any {
	verb, of := name, store.Call{Args: args}
	play := func(s *spec.Store, _ time.Time) any { return s.Do(name, args...) }
	if !plain[name] {
		of, _ = store.Parse(append([]string{name}, args...)) // the library calls nothing else
		verb = of.Verb.Name
		play = func(s *spec.Store, at time.Time) any { return s.Call(verb, of.Keys, of.Args, at) }
	}
	from := f.time()
	reply := l.do(name, args)
	until := f.time()
	if refused, _ := reply.(spec.Refusal); strings.HasPrefix(string(refused), "NOSCRIPT") {
		return reply
	}
	if of.Verb != nil {
		f.calls = append(f.calls, call{of, reply})
	}
	after := spec.New()
	if err := after.Load(f.control, f.prefix); err != nil {
		f.wrong = append(f.wrong, err.Error())
	}
	var best []string
	for _, at := range f.moments(verb, reply, after, from, until) {
		if best != nil && len(best) == 0 {
			break
		}
		s := f.now.Clone()
		s.Listening = func(channel string) int { return f.heard[channel] }
		s.Publish = func(channel, _ string) int { return f.heard[channel] }
		wrong := []string{}
		if got := play(s, at); shown(verb, got) != shown(verb, reply) {
			wrong = append(wrong, fmt.Sprintf("it answers %s, and not %s", spec.Show(reply), spec.Show(got)))
		}
		if wrong = append(wrong, after.Diff(s)...); best == nil || len(wrong) < len(best) {
			best = wrong
		}
	}
	for _, failed := range []bool{false, true} {
		was, is := lane.View(f.now, f.prefix+":", "q", failed), lane.View(after, f.prefix+":", "q", failed)
		wrong := func(format string, args ...any) { best = append(best, fmt.Sprintf(format, args...)) }
		began, _ := is.Since(was)
		rules.State(is, nil, wrong)
		rules.Tokens(was, is, began, wrong)
		rules.Canceled(was, is, func(string) bool { return false }, wrong)
	}
	if len(best) > 0 {
		f.wrong = append(f.wrong, fmt.Sprintf("%s %q:\n%s", verb, of.Args, strings.Join(best, "\n")))
	}
	f.now = after
	return reply
}

// moments are when Redis may have carried out a request: in any of these milliseconds. Where the
// microsecond counts, Redis tells it: in the ids of added tasks, and in records of how tasks ended.
func (f *front) moments(verb string, reply any, after *spec.Store, from, until time.Time) (all []time.Time) {
	within := func(micros int64) bool {
		at := time.UnixMicro(micros)
		all = []time.Time{at}
		return !at.Before(from) && !at.After(until)
	}
	if added, ok := reply.([]any); ok && verb == "add" {
		var ms, seq int64
		if _, err := fmt.Sscanf(fmt.Sprint(added[0]), "a:%d-%d-", &ms, &seq); err == nil && within(ms*1000+seq/1046) {
			return all
		}
	}
	for _, key := range after.Keys() {
		record, _ := after.Get(key).(string)
		if _, _, kind, _, _ := lane.Place(f.prefix+":", key); kind != "result" || f.now.Get(key) == any(record) {
			continue
		}
		if parts := strings.SplitN(record, ":", 3); len(parts) == 3 && within(int64(number(parts[1]))) {
			return all
		}
	}
	all = nil
	for at := from; !at.After(until); at = at.Truncate(time.Millisecond).Add(time.Millisecond) {
		all = append(all, at)
	}
	return all
}

// shown is a reply as text. A round tells in how many microseconds the next task is due,
// which depends on more than the millisecond.
func shown(verb string, reply any) string {
	if all, ok := reply.([]any); ok && verb == "step" {
		all = slices.Clone(all)
		all[12] = fmt.Sprint(all[12]) != "-1"
		return spec.Show(all)
	}
	return spec.Show(reply)
}

func (f *front) time() time.Time {
	t, err := redis.Int64s(f.control.Do("TIME"))
	if err != nil {
		f.wrong = append(f.wrong, err.Error())
		return time.Now()
	}
	return time.UnixMicro(t[0]*1e6 + t[1])
}

// listen has a client hear channels, or no longer, once Redis has said so.
func (f *front) listen(l *line, on bool, channels []string) {
	if l.ear == nil {
		c, err := redis.DialURL(redistest.URL())
		if err != nil {
			f.wrong = append(f.wrong, err.Error())
			return
		}
		l.ear = &redis.PubSubConn{Conn: c}
		go l.relay()
	}
	for _, c := range channels {
		if on {
			_ = l.ear.Subscribe(c)
			f.heard[c]++
			l.heard = append(l.heard, c)
		} else {
			_ = l.ear.Unsubscribe(c)
			f.heard[c]--
			l.heard = slices.DeleteFunc(l.heard, func(o string) bool { return o == c })
		}
		<-l.confirmed
	}
}

// relay passes on what a client hears.
func (l *line) relay() {
	defer close(l.confirmed)
	say := func(words ...any) {
		l.client.Block(func(w *server.Writer) {
			w.WritePushLen(len(words))
			for _, word := range words {
				if n, ok := word.(int); ok {
					w.WriteInt(n)
				} else {
					w.WriteBulk(fmt.Sprintf("%s", word))
				}
			}
			w.Flush()
		})
	}
	for {
		switch m := l.ear.ReceiveWithTimeout(0).(type) {
		case redis.Subscription:
			say(m.Kind, m.Channel, m.Count)
			l.confirmed <- true
		case redis.Message:
			say("message", m.Channel, m.Data)
		case redis.Pong:
			say("pong", m.Data)
		case error:
			return
		}
	}
}

func (f *front) hangUp(l *line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.ear != nil {
		f.listen(l, false, slices.Clone(l.heard))
		_ = l.ear.Close() // here and below: nothing is left to lose
	}
	_ = l.redis.Close()
	delete(f.lines, l.client)
}

// view is what Redis holds of the queue, or of its failed queue.
func (f *front) view(failed bool) *lane.Lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	return lane.View(f.now, f.prefix+":", "q", failed)
}

// begin forgets the calls until now.
func (f *front) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

// made are the calls of a verb since.
func (f *front) made(verb string) (all []call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.Verb.Name == verb {
			all = append(all, c)
		}
	}
	return all
}

// verdict is what was wrong until now.
func (f *front) verdict() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrong
}
