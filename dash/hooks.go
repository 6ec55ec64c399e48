package dash

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

// hooks calls the functions of Options. They're the user's code: if one panics, ends its goroutine or blocks,
// only its own answer is missing.
type hooks struct {
	peer *worqr.Peer
	opts *Options
	log  *slog.Logger

	mu    sync.Mutex // protects the fields below
	told  map[string]bool
	stuck map[string]int // calls that haven't returned in time
}

// unshown replaces a payload whose hook has failed.
const unshown = "(cannot be shown)"

const (
	errQueueHook     = sentence("this dashboard's Options.Queue function failed; see the log")
	errAuthorizeHook = sentence("This dashboard's Options.Authorize function failed, so nothing is allowed; see the log.")
)

// hookPatience is how long a hook may take. It's a variable for tests.
var hookPatience = 10 * time.Second

// call calls a hook, and reports whether it returned in time. Each call has a goroutine of its own, since
// runtime.Goexit ends the goroutine that it's called in, and a hook may block. While one does, it isn't called
// again.
func call[T any](h *hooks, name string, hook func() T) (answer T, returned bool) {
	if h.hangs(name, 0) > 0 {
		return answer, false
	}
	answers := make(chan T, 1)
	go func() {
		returned := false
		defer close(answers)
		defer func() {
			if !returned {
				h.tell(name, reason(recover()), debug.Stack())
			}
		}()
		v := hook()
		returned = true
		answers <- v
	}()
	select {
	case answer, returned = <-answers:
	case <-time.After(hookPatience):
		h.hangs(name, +1)
		go func() {
			for range answers { // until it returns
			}
			h.hangs(name, -1)
		}()
		h.tell(name, fmt.Sprintf("it hasn't returned after %v", hookPatience), nil)
	}
	return answer, returned
}

// hangs records that a hook hasn't returned in time, or has returned late. It returns how many calls are stuck.
func (h *hooks) hangs(name string, more int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stuck[name] += more
	return h.stuck[name]
}

// reason describes why a hook hasn't returned. A panic's value may contain parts of a payload, so only texts of
// the runtime are used.
func reason(why any) string {
	switch err, ok := why.(runtime.Error); {
	case ok:
		return err.Error()
	case why == nil:
		return "runtime.Goexit was called"
	}
	return fmt.Sprintf("a panic with a value of type %T", why)
}

// tell logs the first failure of each hook, with the stack.
func (h *hooks) tell(name, why string, stack []byte) {
	defer func() { _ = recover() }() // the Logger is the user's code, too
	h.mu.Lock()
	told := h.told[name]
	h.told[name] = true
	h.mu.Unlock()
	if told {
		return
	}
	h.log.Error("worqr: dashboard: a function in Options failed; its further failures aren't logged",
		slog.String("function", name), slog.String("error", why), slog.String("stack", string(stack)))
}

func (h *hooks) handle(name string) (q *worqr.Queue, err error) {
	if h.opts.Queue == nil {
		return h.peer.Queue(name), nil
	}
	if q, _ = call(h, "Queue", func() *worqr.Queue { return h.opts.Queue(name) }); q == nil {
		return nil, errQueueHook
	}
	return q, nil
}

// payload returns the text that Options.Payload returns for a payload.
func (h *hooks) payload(queue string, payload []byte) string {
	text, returned := call(h, "Payload", func() string { return h.opts.Payload(queue, payload) })
	if !returned {
		return unshown
	}
	return text
}

// authorize fails if an action isn't allowed.
func (h *hooks) authorize(r *http.Request, a Action) error {
	if h.opts.Authorize == nil {
		return nil
	}
	refusal, returned := call(h, "Authorize", func() *sentence {
		err := h.opts.Authorize(r, a)
		if err == nil {
			return nil
		}
		return new(sentence(err.Error())) // which is the user's code, too
	})
	switch {
	case !returned:
		return errAuthorizeHook
	case refusal != nil:
		return *refusal
	}
	return nil
}

func (h *hooks) user(r *http.Request) string {
	if h.opts.User == nil {
		name, _, _ := r.BasicAuth()
		return name
	}
	name, returned := call(h, "User", func() string { return h.opts.User(r) })
	if !returned {
		return "unknown"
	}
	return name
}
