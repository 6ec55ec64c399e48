package verdict

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
)

// ErrGoexit is the error of a handler that ended its goroutine.
var ErrGoexit = errors.New("the handler called runtime.Goexit")

// A Panic is the error of a handler that panicked.
type Panic struct {
	Value any
	Stack []byte
	At    Place
}

// A Place is where code panics: the innermost calls, and the file and line of the first.
type Place struct {
	calls [3]uintptr
	line  string
}

// Panicked converts a recovered panic into a *Panic. One to panic with again keeps its first stack.
// Call it in the deferred function that recovers.
func Panicked(v any) *Panic {
	if p, ok := v.(*Panic); ok {
		return p
	}
	return &Panic{v, debug.Stack(), place()}
}

func (p *Panic) Error() string {
	if p.At.line == "" {
		return fmt.Sprintf("panic: %v", p.Value)
	}
	return fmt.Sprintf("panic at %s: %v", p.At.line, p.Value)
}

// Unwrap returns the panic's value if that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// place returns the place of the panic that is being recovered.
func place() (at Place) {
	var all [64]uintptr
	callers := all[:runtime.Callers(1, all[:])]
	frames := runtime.CallersFrames(callers)
	panicking, n := false, 0
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = panicking || f.Function == "runtime.gopanic"
		case panicking:
			if n == 0 {
				at.line = fmt.Sprintf("%s:%d", path.Join(path.Base(path.Dir(f.File)), path.Base(f.File)), f.Line)
			}
			at.calls[n] = f.PC
			n++
		}
		if !more || n == len(at.calls) {
			return at
		}
	}
}
