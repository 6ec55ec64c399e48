package tracing

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/worqrtrace"
)

// An attempt's end is told once, after its start, with what is known of it.
func TestStory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  End
		text string // of the handler's error
		want worqrtrace.Task
	}{
		"finished":         {End{Outcome: worqrtrace.Finished}, "ignored", worqrtrace.Task{ResultSize: 9}},
		"retried":          {End{Outcome: worqrtrace.Retried, Delay: time.Hour}, "no", worqrtrace.Task{Error: "no"}},
		"failed":           {End{Outcome: worqrtrace.Failed, Kind: "crashed", Why: "too often"}, "", worqrtrace.Task{Kind: "crashed", Error: "too often"}},
		"canceled":         {End{Outcome: worqrtrace.Canceled, Why: "canceled"}, "", worqrtrace.Task{Error: "canceled"}},
		"canceled in vain": {End{Outcome: worqrtrace.Canceled, Why: "canceled"}, "no", worqrtrace.Task{Error: "no"}},
		"lost":             {End{Outcome: worqrtrace.Lost, Why: "evicted"}, "no", worqrtrace.Task{Error: "evicted"}},
	} {
		for _, early := range []bool{false, true} { // whether it ends before someone works on it
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				var order []string
				var ended worqrtrace.Task
				s := New(&worqrtrace.Trace{
					Started: func(worqrtrace.Task) { order = append(order, "started") },
					Ended:   func(e worqrtrace.Task) { order, ended = append(order, "ended"), e },
				}, logs.New(slog.New(slog.DiscardHandler))).Story()
				if early {
					s.Left(9, c.text)
					s.Over(c.end)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				is.Equal(len(order), 0)
				began := time.Now()
				s.Began(worqrtrace.Task{Queue: "q"})
				s.Began(worqrtrace.Task{Queue: "again"})
				if !early {
					time.Sleep(time.Minute)
					s.Left(9, c.text)
					s.Over(c.end)
				}
				s.Over(End{Outcome: worqrtrace.Lost, Why: "again"})
				synctest.Wait()
				is.Equal(order, []string{"started", "ended"})
				is.Equal(ended.Queue, "q")
				is.Equal(ended.Waited, time.Second)
				is.Equal(ended.Outcome, c.end.Outcome)
				is.Equal(ended.ResultSize, c.want.ResultSize)
				is.Equal(ended.Kind, c.want.Kind)
				is.Equal(ended.Error, c.want.Error)
				is.Equal(!ended.Next.IsZero(), name == "retried")
				if !early {
					is.Equal(ended.Ran, time.Minute)
					is.Equal(ended.At, began.Add(time.Minute))
				}
			})
		}
	}
	var none *Story
	none.Left(1, "")
	none.Began(worqrtrace.Task{})
	none.Over(End{})
}
