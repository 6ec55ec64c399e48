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

// The first line counts the tasks dropped within a second, not just the first of thousands. Later
// lines come once a minute.
func TestLossIsLoggedWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, says := heard(t)
		l := Loss{Log: log, Queue: "q"}
		for range 10 {
			l.Add(3, 5)
			time.Sleep(50 * time.Millisecond)
		}
		says()
		time.Sleep(time.Second)
		says(" queue=q dropped=30 kept=5\n")
		l.Add(2, 5)
		time.Sleep(30 * time.Second)
		l.Add(2, 5)
		says()
		time.Sleep(31 * time.Second)
		says(" dropped=4 ")
		time.Sleep(time.Hour)
		l.Add(1, 5)
		time.Sleep(2 * time.Second)
		says(" dropped=1 ")
		l.Add(7, 5)
		l.Flush()
		says(" dropped=7 ")
	})
}
