package worqrtrace_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/worqrtrace"
)

const canary = "canary"

// Arguments of trace functions can be printed and logged without showing a key.
func TestTraceIsDiscreet(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, nil))
	headers := map[string]string{canary: canary}
	for _, v := range []any{worqrtrace.Task{Queue: "emails", Key: canary, Headers: headers}, worqrtrace.Queue{Queue: "emails", Key: canary, Headers: headers}} {
		said := fmt.Sprintf("%v %+v %#v %s", v, v, v, v)
		log.Info("traced", "v", v)
		if said += text.String(); strings.Contains(said, canary) || strings.Count(said, "emails") < 5 {
			t.Error(said)
		}
		text.Reset()
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var said []string
	says := func(what string) *worqrtrace.Trace {
		return &worqrtrace.Trace{
			Ended:  func(task worqrtrace.Task) { said = append(said, what+" ended "+task.Queue) },
			Missed: func(calls int) { said = append(said, fmt.Sprint(what, " missed ", calls)) },
		}
	}
	all := worqrtrace.Join(says("a"), nil, &worqrtrace.Trace{}, says("b"))
	is.True(all.Started == nil) // no trace has one
	all.Ended(worqrtrace.Task{Queue: "q"})
	all.Missed(3)
	is.Equal(said, []string{"a ended q", "b ended q", "a missed 3", "b missed 3"})
}
