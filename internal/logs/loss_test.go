package logs

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

// A textChan receives what is written, line by line.
type textChan chan string

func (c textChan) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// The first line counts what a second has dropped, not the first task of thousands; later
// ones come once a minute.
func TestLossIsLoggedWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		text := make(textChan, 10)
		l := Loss{Log: New(slog.New(slog.NewTextHandler(text, nil))), Queue: "q"}
		says := func(dropped ...int) {
			t.Helper()
			synctest.Wait()
			is.Equal(len(text), len(dropped))
			for _, n := range dropped {
				if line, want := <-text, fmt.Sprintf(" queue=q dropped=%d kept=5\n", n); !strings.HasSuffix(line, want) {
					t.Errorf("%q lacks %q", line, want)
				}
			}
		}
		for range 10 {
			l.Add(3, 5)
			time.Sleep(50 * time.Millisecond)
		}
		says()
		time.Sleep(time.Second)
		says(30)
		l.Add(2, 5)
		time.Sleep(30 * time.Second)
		l.Add(2, 5)
		says()
		time.Sleep(31 * time.Second)
		says(4)
		time.Sleep(time.Hour)
		l.Add(1, 5)
		time.Sleep(2 * time.Second)
		says(1)
		l.Add(7, 5)
		l.Flush()
		says(7)
	})
}
