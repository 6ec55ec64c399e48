package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/invariants"
	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A front makes the peers of a fleet change Redis one after the other. It records their calls and
// what Redis holds after each change, and checks that against the rules.
type front struct {
	prefix  string
	control redis.Conn
	turn    sync.Mutex // held by a connection while it changes Redis

	mu    sync.Mutex  // protects the fields below
	now   *spec.Store // what Redis holds
	calls []call
	wrong []string
}

// A call is a call of a script, and its reply.
type call struct {
	store.Call
	reply any
}

// writes are the commands that change something. Not all are scripts: LPUSH fills long lists, and
// registrations are removed with plain commands.
var writes = map[string]bool{"EVALSHA": true, "EVAL": true, "LPUSH": true, "DEL": true, "UNLINK": true, "SREM": true}

func newFront(t testing.TB) *front {
	return &front{prefix: redistest.Prefix(t), control: redistest.Conn(t), now: spec.New()}
}

// open returns a peer of the fleet.
func (f *front) open(t testing.TB, as string, opts worqr.Options) *worqr.Peer {
	opts.Prefix = f.prefix
	return openThrough(t, as, opts, f.queueUp)
}

// queueUp makes a connection wait for its turn before it sends writes. The turn ends when all of
// them are answered.
func (f *front) queueUp(c *through) redis.Conn {
	var mu sync.Mutex
	waits, its := 0, false // how many writes have no reply yet, and whether this connection has the turn
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
		if c.Err() != nil { // no more replies will come
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

// took records a command and its reply.
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

// look loads what Redis holds, and checks it.
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
		invariants.State(is, nil, wrong)
		invariants.Tokens(was, is, began, wrong)
		invariants.Canceled(was, is, func(string) bool { return false }, wrong)
	}
	f.now = after
}

// holds returns what Redis holds.
func (f *front) holds() *spec.Store {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// view returns what Redis holds of the queue or of its failed queue.
func (f *front) view(failed bool) *lane.Lane { return lane.View(f.holds(), f.prefix+":", "q", failed) }

// begin forgets the calls made so far.
func (f *front) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = nil
}

// made returns the calls of a verb since begin.
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

// verdict returns the violations found so far.
func (f *front) verdict() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrong
}
