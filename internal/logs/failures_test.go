package logs

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A textChan receives written text, line by line.
type textChan chan string

func (c textChan) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// heard returns a Log in a synctest bubble, and a function that checks the lines since its last
// call.
func heard(t *testing.T) (log *Log, says func(lines ...string)) {
	text := make(textChan, 2000)
	return New(slog.New(slog.NewTextHandler(text, nil))), func(lines ...string) {
		t.Helper()
		synctest.Wait()
		if len(text) != len(lines) {
			t.Fatalf("%d lines, want %q", len(text), lines)
		}
		for _, want := range lines {
			if line := <-text; !strings.Contains(line, want) {
				t.Errorf("%q lacks %q", line, want)
			}
		}
	}
}

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

// Of tasks that are dropped from a full failed queue, a line comes at once, and then one with their number each minute.
func TestDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, says := heard(t)
		f := NewFailures(log, LogAll)
		for range 10 {
			f.Dropped("q", 3, 5)
			time.Sleep(time.Second)
		}
		says(" queue=q dropped=3 kept=5\n")
		time.Sleep(time.Minute)
		says("more failed tasks were dropped for good\" count=27 ")
		f.Dropped("q", 2, 5)
		f.Dropped("q", 7, 5)
		says(" dropped=2 ")
		f.Flush()
		says(" count=7 ")
	})
}
