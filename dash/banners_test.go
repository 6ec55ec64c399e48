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
	one := &inspect.Worker{Name: "a", Queues: []string{"q"}}
	start := time.Now()
	past := func(failed, waiting int) history {
		return history{{At: start}, {At: start.Add(time.Minute), Failed: failed, Waiting: waiting, starts: 20}}
	}
	for _, c := range []struct {
		name  string
		state queueState
		want  string // severity, kind and a part of the text; "" means no banner
	}{
		{"well", queueState{counts: inspect.QueueStats{Waiting: 9, Workers: 1, IdleWorkers: 1}, workers: []*inspect.Worker{one}}, ""},
		{"no worker", queueState{counts: inspect.QueueStats{Waiting: 2}}, "stopped no-worker 2 tasks are waiting, and no worker serves this queue. Start the service"},
		{"no worker, later", queueState{counts: inspect.QueueStats{Scheduled: 1}}, "risk no-worker All are scheduled for later."},
		{"paused", queueState{counts: inspect.QueueStats{Waiting: 1, Paused: true, PausedBy: "ann", Workers: 1}, workers: []*inspect.Worker{one}}, "notice paused 1 task is waiting, and the queue is paused. Paused by ann. Resume it"},
		{"paused, growing", queueState{counts: inspect.QueueStats{Waiting: 1, Paused: true, Workers: 1}, workers: []*inspect.Worker{one}, past: past(0, 1)}, "stopped paused The backlog is growing."},
		{"paused, empty", queueState{counts: inspect.QueueStats{Paused: true}}, "notice paused The queue is paused."},
		{"suspect", queueState{counts: inspect.QueueStats{Workers: 2}, workers: []*inspect.Worker{one}, missing: 4 * time.Second}, "stuck expired-worker 1 worker has stopped sending heartbeats"},
		{"just joined", queueState{counts: inspect.QueueStats{Workers: 2}, workers: []*inspect.Worker{one}}, ""},
		{"all dead", queueState{counts: inspect.QueueStats{Workers: 1, Silent: true, Running: 3}}, "stopped no-worker 3 tasks are waiting, and no worker serves this queue. Its only worker stopped sending heartbeats: "},
		{"failures", queueState{counts: inspect.QueueStats{Workers: 1}, workers: []*inspect.Worker{one}, past: past(12, 0)}, "stuck failing 12 tasks have failed for good, far more than usual. That was within 60 seconds. Fix"},
		{"few failures", queueState{counts: inspect.QueueStats{Workers: 1}, workers: []*inspect.Worker{one}, past: past(2, 0)}, ""},
		{"backlog", queueState{counts: inspect.QueueStats{Waiting: 900, Workers: 1}, workers: []*inspect.Worker{one}, past: past(0, 300)}, "risk backlog That's 300 more than 60 seconds ago, and all workers are busy."},
		{"unreadable", queueState{err: errors.New("WRONGTYPE")}, "stuck unreadable WRONGTYPE."},
	} {
		c.state.name, c.state.at = "q", start
		s := &snapshot{At: start, queues: []*queueState{&c.state}}
		for _, w := range c.state.workers {
			s.workers = append(s.workers, *w)
		}
		var got []banner
		for _, l := range inspect.Fold(worqr.Judge(s.sight(nil))) {
			got = append(got, bannerOf(l))
		}
		if c.want == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		severity, rest, _ := strings.Cut(c.want, " ")
		kind, text, _ := strings.Cut(rest, " ")
		if len(got) != 1 || string(got[0].Severity) != severity || got[0].Kind != kind || !strings.Contains(got[0].Text, text) || got[0].Queue != "q" || got[0].Link == "" || got[0].Title == "" {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
	is := is.New(t)
	for err, title := range map[error]string{errors.New("connection refused"): "Redis can't be reached", worqr.ErrShutdown: "This process is shutting down"} {
		is.Equal(worqr.Judge((&snapshot{err: fmt.Errorf("x: %w", err)}).sight(nil))[0].Title, title)
	}
}

// Banners of the same kind are one, with the sum. The worst are shown, and the others are in a list that can be opened.
func TestFolded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &snapshot{At: time.Now()}
	for i := range 9 {
		s.queues = append(s.queues, &queueState{name: fmt.Sprint(i), at: s.At, counts: inspect.QueueStats{Waiting: i + 1}})
	}
	s.queues = append(s.queues, &queueState{name: "p", at: s.At, counts: inspect.QueueStats{Waiting: 1, Paused: true, Workers: 1}})
	s.Server = inspect.ServerStats{UsedMemory: 100, MaxMemory: 100, Policy: "noeviction"}
	s.silences = []inspect.Silence{{Kind: "paused", Queue: "p", Until: s.At.Add(time.Hour)}}
	d := &dashboard{hooks: &hooks{}, check: &checkup{}}
	all := d.banners(s, "")
	f := (&page{Banners: all}).Folded()
	is.Equal(len(f.First), shown)
	is.Equal([]string{f.First[0].Kind, f.First[1].Kind}, []string{"full", "no-worker"})
	is.Equal(f.First[1].Queue, "8")
	is.Equal(f.First[1].Others, 8)
	is.True(strings.HasPrefix(f.First[1].Text, "45 tasks are waiting, and no worker serves these queues."))
	is.Equal([]string{f.Rest[0].Level, f.Rest[0].Title}, []string{"notice", "Silenced: Paused"})
	is.Equal(len(d.banners(s, "3")), 2)
	s = &snapshot{At: s.At, queues: s.queues, workers: []inspect.Worker{{ID: "w", Queues: []string{"4"}, StuckHandlers: 1, LastHeartbeat: s.At}}}
	is.Equal(len(d.banners(s, "3")), 1)
	is.Equal(len(d.banners(s, "4")), 2) // the worker serves it
}
