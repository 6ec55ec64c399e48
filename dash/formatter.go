package dash

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// unshown replaces a payload for which Options.Payload has panicked.
const unshown = "(cannot be shown)"

// A formatter calls Options.Payload. That's the user's code, and streams call it outside of any request: if it panics,
// only its own answer is missing.
type formatter struct {
	format func(queue string, payload []byte) string
	log    *slog.Logger

	mu   sync.Mutex
	told time.Time // when a panic was last logged; protected by mu
}

// text returns the text of a payload.
func (f *formatter) text(queue string, payload []byte) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = unshown
			f.tell(queue, v, debug.Stack())
		}
	}()
	return f.format(queue, payload)
}

// tell logs a panic. Its value may contain parts of the payload, so only texts of the runtime are used.
func (f *formatter) tell(queue string, v any, stack []byte) {
	f.mu.Lock()
	quiet := time.Since(f.told) < time.Minute
	if !quiet {
		f.told = time.Now()
	}
	f.mu.Unlock()
	if quiet {
		return
	}
	why := fmt.Sprintf("a panic with a value of type %T", v)
	if err, ok := v.(runtime.Error); ok {
		why = err.Error()
	}
	f.log.Error("worqr: dashboard: Options.Payload panicked; its panics are logged once a minute at most",
		slog.String("queue", queue), slog.String("error", why), slog.String("stack", string(stack)))
}
