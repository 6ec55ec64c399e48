package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/integration/spec/rules"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A front has the peers of a fleet change Redis one after the other. So it knows what they call,
// and what Redis holds behind each change, which must break no rule.
type front struct {
	prefix  string
	control redis.Conn
	turn    sync.Mutex // held by a connection while it changes Redis

	mu    sync.Mutex  // protects the fields below
	now   *spec.Store // what Redis holds
	calls []call
	wrong []string
}

// A call of a script, and its reply.
type call struct {
	store.Call
	reply any
}

// writes are the commands that change something: long lists are filled without a script, and
// registrations go.
var writes = map[string]bool{"EVALSHA": true, "EVAL": true, "LPUSH": true, "DEL": true, "UNLINK": true, "SREM": true}

func newFront(t testing.TB) *front {
	return &front{prefix: redistest.Prefix(t), control: redistest.Conn(t), now: spec.New()}
}

// open returns a peer of the fleet.
func (f *front) open(t testing.TB, as string, opts worqr.Options) *worqr.Peer {
	opts.Prefix = f.prefix
	return openThrough(t, as, opts, f.queueUp)
}

// queueUp has a connection wait for its turn before it sends what changes something, and end it
// when all of that is answered.
func (f *front) queueUp(c *through) redis.Conn {
	var mu sync.Mutex
	waits, its := 0, false // how many are to be answered, and whether it is its turn
	c.OnSend = func(command string, _ []any) {
		mu.Lock()
		defer mu.Unlock()
		if writes[command] {
			waits++
		}
	}
	c.OnFlush = func() {
		mu.Lock()
		defer mu.Unlock()
		if waits > 0 && !its {
			f.turn.Lock()
			its = true
		}
	}
	c.OnReply = func(command string, args []any, reply any, err error) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		if writes[command] {
			f.took(command, args, reply, err)
			waits--
		}
		if c.Err() != nil { // nothing else is answered
			waits = 0
		}
		if its && waits == 0 {
			f.look()
			its = false
			f.turn.Unlock()
		}
		return reply, err
	}
	return c
}

// took notes a command and its reply.
func (f *front) took(command string, args []any, reply any, err error) {
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		return
	}
	words := []string{command}
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			a = string(b)
		}
		words = append(words, fmt.Sprint(a))
	}
	if of, ok := store.Parse(words); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls = append(f.calls, call{of, reply})
	}
}

// look takes in what Redis holds, and judges it.
func (f *front) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	wrong := func(format string, args ...any) { f.wrong = append(f.wrong, fmt.Sprintf(format, args...)) }
	after := spec.New()
	if err := after.Load(f.control, f.prefix); err != nil {
		wrong("%v", err)
	}
	for _, failed := range []bool{false, true} {
		was, is := lane.View(f.now, f.prefix+":", "q", failed), lane.View(after, f.prefix+":", "q", failed)
		began, _ := is.Since(was)
		rules.State(is, nil, wrong)
		rules.Tokens(was, is, began, wrong)
		rules.Canceled(was, is, func(string) bool { return false }, wrong)
	}
	f.now = after
}

// holds is what Redis holds.
func (f *front) holds() *spec.Store {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// view is what Redis holds of the queue, or of its failed queue.
func (f *front) view(failed bool) *lane.Lane { return lane.View(f.holds(), f.prefix+":", "q", failed) }

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
