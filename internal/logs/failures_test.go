package logs

import (
	"testing"
	"testing/synctest"
)

// Warnings don't use up the limit of errors, and stacks have one of their own.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, says := heard(t)
		f := NewFailures(log, LogLimited)
		for range 30 {
			f.Warn("worqr: a warning", "q", 3)
		}
		f.Error("worqr: an error", "q", 1)
		f.Panicked("here", "q")
		f.Panicked("here", "q") // within the limit
		f.Panicked("here", "q")
		f.Panicked("there", "q")
		f.Stuck("q", func() []any { t.Error("the stack is searched"); return nil })
		want := []string{}
		for range failureLines {
			want = append(want, "worqr: a warning")
		}
		says(append(want, "worqr: an error", "handler panicked", "handler panicked", "handler panicked")...)
		f.Flush()
		says("more tasks failed and will be retried, or have other warnings\" count=30 ", "more handlers panicked, or didn't return after their context ended\" count=2 ")
	})
}

// With LogAll, nothing is left out but stacks that would have to be searched.
func TestLogAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, says := heard(t)
		f := NewFailures(log, LogAll)
		var want []string
		for range 2 * failurePeak {
			f.Warn("worqr: a warning", "q", 1)
			f.Panicked("here", "q")
			want = append(want, "worqr: a warning", "handler panicked")
		}
		f.Stuck("q", func() []any { return []any{"stack", "main"} })
		f.Stuck("q", func() []any { t.Error("the stack is searched"); return nil })
		says(append(want, "didn't return after its context ended; its slot goes to other tasks\" stack=main")...)
		f.Flush()
		says("more handlers panicked, or didn't return after their context ended\" count=1 ")
	})
}
