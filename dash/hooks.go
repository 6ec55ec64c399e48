package dash

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// hooks calls the functions of Options. They're the user's code: if one panics, ends its goroutine or blocks,
// only its own answer is missing.
type hooks struct {
	opts *Options
	log  *slog.Logger

	patience     time.Duration // how long a function may take that decides about a request,
	partPatience time.Duration // and one that's called for parts of a page

	mu    sync.Mutex           // protects the fields below
	told  map[string]time.Time // when a kind of failure of a function was last logged
	calls map[string]calls     // of each function, and of each of its shares
}

// calls counts those that haven't returned. Stuck are those whose callers no longer wait.
type calls struct{ running, stuck int }

// A share limits a function's calls for one visitor, one queue or one payload, so that stuck ones leave room for
// others. docs/dashboard.md lists the limits.
type share struct {
	of    string
	stuck int // if so many are stuck, no more are made
}

// Limits of the calls that run at the same time.
const (
	mostCalls   = 500 // of one function
	mostOfShare = 50

	mostStuckVisitor = 10
	mostStuckQueue   = 4
)

// unshown replaces a payload whose hook has failed.
const unshown = "(cannot be shown)"

const errAuthorizeHook = sentence("This dashboard's Options.Authorize function failed, so nothing is allowed; see the log.")

// How long functions may take. They're variables for tests.
var (
	hookPatience = 10 * time.Second
	partPatience = 2 * time.Second
)

// call calls a hook, and reports whether it returned in time. Each call has a goroutine of its own, since
// runtime.Goexit ends the goroutine that it's called in, and a hook may block. About is for the log.
func call[T any](h *hooks, name string, patience time.Duration, about slog.Attr, shares []share, hook func() T) (answer T, returned bool) {
	if !h.begin(name, shares) {
		return answer, false
	}
	answers := make(chan T, 1)
	go func() {
		returned := false
		defer close(answers)
		defer func() {
			if !returned {
				h.tell(name, "failed", reason(recover()), about, debug.Stack())
			}
		}()
		v := hook()
		returned = true
		answers <- v
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case answer, returned = <-answers:
		h.count(name, shares, calls{running: -1})
	case <-late.C:
		h.count(name, shares, calls{stuck: +1})
		go func() {
			for range answers { // until it returns
			}
			h.count(name, shares, calls{running: -1, stuck: -1})
		}()
		h.tell(name, "stuck", fmt.Sprintf("it hasn't returned after %v", patience), about, nil)
	}
	return answer, returned
}

// begin counts a call, unless too many haven't returned.
func (h *hooks) begin(name string, shares []share) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls[name].running >= mostCalls {
		return false
	}
	for _, s := range shares {
		if c := h.calls[name+s.of]; c.running >= mostOfShare || c.stuck >= s.stuck {
			return false
		}
	}
	h.countLocked(name, shares, calls{running: +1})
	return true
}

func (h *hooks) count(name string, shares []share, more calls) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.countLocked(name, shares, more)
}

func (h *hooks) countLocked(name string, shares []share, more calls) {
	for _, s := range append(shares, share{}) { // the last one is all
		c := h.calls[name+s.of]
		c.running += more.running
		c.stuck += more.stuck
		if h.calls[name+s.of] = c; c == (calls{}) {
			delete(h.calls, name+s.of)
		}
	}
}

// banners says which functions hang.
func (h *hooks) banners() (all []banner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range []string{"Authorize", "Payload", "User"} {
		if n := h.calls[name].stuck; n > 0 {
			all = append(all, banner{Level: "warning", Severity: inspect.SeverityRisk, Kind: "hook", Title: "This dashboard's Options." + name + " hangs",
				Text: words.Counted(n, "call") + " of the function didn't return in time. What it was asked for is missing or refused. The log of this process has more."})
		}
	}
	return all
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

// tell logs a failure, with the stack.
func (h *hooks) tell(name, kind, why string, about slog.Attr, stack []byte) {
	defer func() { _ = recover() }() // the Logger is the user's code, too
	h.mu.Lock()
	quiet := time.Since(h.told[name+kind]) < time.Minute
	if !quiet {
		h.told[name+kind] = time.Now()
	}
	h.mu.Unlock()
	if quiet {
		return
	}
	h.log.Error("worqr: dashboard: a function in Options failed; such failures of it are logged once a minute at most",
		slog.String("function", name), about, slog.String("error", why), slog.String("stack", string(stack)))
}

// payload returns the text that Options.Payload returns for a payload.
func (h *hooks) payload(queue string, payload []byte) string {
	shares := []share{{"queue " + queue, mostStuckQueue}, {"payload " + digest(payload) + queue, 1}}
	text, returned := call(h, "Payload", h.partPatience, slog.String("queue", queue), shares, func() string { return h.opts.Payload(queue, payload) })
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
	refusal, returned := call(h, "Authorize", h.patience, slog.String("from", r.RemoteAddr), []share{{visitor(r), mostStuckVisitor}}, func() *sentence {
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
	name, returned := call(h, "User", h.patience, slog.String("from", r.RemoteAddr), []share{{visitor(r), mostStuckVisitor}}, func() string { return h.opts.User(r) })
	if !returned {
		return "unknown"
	}
	return name
}

// visitor returns who sends a request, as far as it's known before it's authorized: those behind one proxy differ in
// their credentials.
func visitor(r *http.Request) string {
	sum := sha256.Sum256([]byte(address(r) + "\x00" + r.Header.Get("Authorization") + "\x00" + r.Header.Get("Cookie")))
	return "visitor " + string(sum[:])
}

// address returns the address that a request comes from, without the port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
