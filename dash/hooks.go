package dash

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/worqr/worqr"
)

// hooks calls the functions of Options. They're somebody else's code: one that panics, or ends its
// goroutine, costs its own answer and nothing else.
type hooks struct {
	peer *worqr.Peer
	opts *Options
	log  *slog.Logger

	mu   sync.Mutex // protects told
	told map[string]bool
}

// unshown stands for a payload whose hook has failed.
const unshown = "(cannot be shown)"

const (
	errQueueHook     = sentence("the function Options.Queue of this dashboard has failed; the log says how")
	errAuthorizeHook = sentence("The function Options.Authorize of this dashboard has failed, so nothing is allowed; the log says how.")
)

// call runs a hook, and reports whether it returned. Each call has a goroutine of its own, since
// runtime.Goexit ends the goroutine that it's called in.
func (h *hooks) call(name string, hook func()) (returned bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if !returned {
				h.tell(name, recover(), debug.Stack())
			}
		}()
		hook()
		returned = true
	}()
	<-ended
	return returned
}

// tell logs the first failure of each hook, with the stack. What a hook panics with may have parts of
// a payload, so only texts of the runtime are logged.
func (h *hooks) tell(name string, why any, stack []byte) {
	defer func() { _ = recover() }() // the Logger is somebody else's code, too
	h.mu.Lock()
	told := h.told[name]
	if h.told == nil {
		h.told = map[string]bool{}
	}
	h.told[name] = true
	h.mu.Unlock()
	if told {
		return
	}
	text := fmt.Sprintf("a panic with a value of type %T", why)
	switch err, ok := why.(runtime.Error); {
	case ok:
		text = err.Error()
	case why == nil:
		text = "runtime.Goexit was called"
	}
	h.log.Error("worqr: dashboard: a function of Options has failed; further failures of it aren't logged",
		slog.String("function", name), slog.String("error", text), slog.String("stack", string(stack)))
}

// handle returns the handle of a queue.
func (h *hooks) handle(name string) (q *worqr.Queue, err error) {
	if h.opts.Queue == nil {
		return h.peer.Queue(name), nil
	}
	if h.call("Queue", func() { q = h.opts.Queue(name) }); q == nil {
		return nil, errQueueHook
	}
	return q, nil
}

// payload returns what Options.Payload makes of a payload.
func (h *hooks) payload(queue string, payload []byte) (text string) {
	if !h.call("Payload", func() { text = h.opts.Payload(queue, payload) }) {
		return unshown
	}
	return text
}

// authorize fails if an action isn't allowed.
func (h *hooks) authorize(r *http.Request, a Action) (err error) {
	if h.opts.Authorize == nil {
		return nil
	}
	text := ""
	returned := h.call("Authorize", func() {
		if err = h.opts.Authorize(r, a); err != nil {
			text = err.Error() // which is somebody else's code, too
		}
	})
	switch {
	case !returned:
		return errAuthorizeHook
	case err != nil:
		return sentence(text)
	}
	return nil
}

// user returns who acts.
func (h *hooks) user(r *http.Request) (name string) {
	if h.opts.User == nil {
		name, _, _ = r.BasicAuth()
		return name
	}
	if !h.call("User", func() { name = h.opts.User(r) }) {
		return "unknown"
	}
	return name
}
