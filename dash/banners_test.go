package dash

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// Each problem has a banner that names the queue, the cause and the next step.
func TestBanners(t *testing.T) {
	t.Parallel()
	minute := growth{over: time.Minute}
	one := &inspect.Worker{Name: "a", Lease: 3 * time.Second}
	for _, c := range []struct {
		name  string
		state queueState
		want  string // level, kind and a part of the text; "" means no banner
	}{
		{"well", queueState{counts: inspect.QueueStats{Waiting: 9, Workers: 1}, workers: []*inspect.Worker{one}}, ""},
		{"no worker", queueState{counts: inspect.QueueStats{Waiting: 2}}, "warning no-worker 2 tasks are waiting, and no worker serves this queue. Start a peer"},
		{"no worker, later", queueState{counts: inspect.QueueStats{Scheduled: 1}}, "warning no-worker 1 task scheduled"},
		{"paused", queueState{counts: inspect.QueueStats{Waiting: 1, Paused: true}}, "warning paused 1 task is waiting, and none starts until"},
		{"paused, empty", queueState{counts: inspect.QueueStats{Paused: true}}, "notice paused No task starts"},
		{"suspect", queueState{counts: inspect.QueueStats{Workers: 2}, workers: []*inspect.Worker{one}, missing: 4 * time.Second}, "warning suspect 1 worker of 2 stopped sending heartbeats"},
		{"just joined", queueState{counts: inspect.QueueStats{Workers: 2}, workers: []*inspect.Worker{one}}, ""},
		{"all dead", queueState{counts: inspect.QueueStats{Workers: 1, Running: 3}}, "warning suspect No worker is left to evict"},
		{"failures", queueState{counts: inspect.QueueStats{Workers: 1}, workers: []*inspect.Worker{one}, grown: growth{over: time.Minute, failed: 12}}, "warning failed 12 failed tasks more than 1 min ago. Fix"},
		{"failures at once", queueState{counts: inspect.QueueStats{Workers: 1}, workers: []*inspect.Worker{one}, grown: growth{over: time.Second, failed: 12}}, "warning failed 12 failed tasks more than 10 s ago. Fix"},
		{"few failures", queueState{counts: inspect.QueueStats{Workers: 1}, workers: []*inspect.Worker{one}, grown: growth{over: time.Minute, failed: 2}}, ""},
		{"backlog", queueState{counts: inspect.QueueStats{Waiting: 900, Workers: 1}, workers: []*inspect.Worker{one}, grown: growth{over: time.Minute, waiting: 300}}, "warning backlog 300 tasks more than 1 min ago, and all workers are busy"},
		{"unreadable", queueState{err: errors.New("WRONGTYPE"), grown: minute}, "error unreadable WRONGTYPE"},
	} {
		got := ofQueue(&c.state)
		if c.want == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		level, rest, _ := strings.Cut(c.want, " ")
		kind, text, _ := strings.Cut(rest, " ")
		if len(got) != 1 || got[0].Level != level || got[0].Kind != kind || !strings.Contains(got[0].Text, text) || got[0].Link == "" || got[0].Title == "" {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
	is := is.New(t)
	is.True(strings.Contains(stuck(&inspect.Worker{Name: "api-1", StuckHandlers: 2}).Text, "2 handlers of api-1"))
	is.True(strings.HasPrefix(stuck(&inspect.Worker{Name: "api-1", StuckHandlers: 1}).Text, "1 handler of api-1 ignored the end of the context"))
	is.True(strings.HasSuffix(away(&snapshot{err: fmt.Errorf("%w: WRONGPASS disabled.", worqr.ErrLogin)}).Text, "WRONGPASS disabled. Check the user and the password that this process uses."))
	for err, title := range map[error]string{
		errors.New("connection refused"): "Redis can't be reached", worqr.ErrLogin: "Redis refuses the login",
		worqr.ErrDenied: "Redis denies a permission", worqr.ErrShutdown: "This process is shutting down",
	} {
		is.Equal(away(&snapshot{err: fmt.Errorf("x: %w", err)}).Title, title)
	}
	is.True(strings.Contains(away(&snapshot{err: errors.New("x"), At: time.Now()}).Text, "This page shows the state at "))
}

// Banners of the same kind are folded into one, with the sum. The worst are shown, and the others are in a list
// that can be opened.
func TestFold(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var all []banner
	for i := range 9 {
		all = append(all, ofQueue(&queueState{name: fmt.Sprint(i), counts: inspect.QueueStats{Waiting: i + 1}})...)
	}
	all = append(all, banner{Level: "warning", Kind: "paused", Queue: "p"}, banner{Level: "warning", Kind: "memory"})
	f := fold(all)
	is.Equal(len(f.First), shown)
	is.Equal(len(f.Rest), 1)
	is.Equal(f.First[0].Others, 8)
	is.Equal(f.First[0].Text, "45 tasks are waiting, and no worker serves these queues. Start a peer that handles them.")
	is.Equal(f.First[1].Queue, "p")
	is.Equal(f.Rest[0].Kind, "memory")
}
