package main

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// Every command behaves the same in a cluster, whose nodes share the queues, and behind sentinels.
func TestEngines(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	w := redistest.StartSentinels(t, redistest.SentinelSetup{})
	for name, engine := range map[string]struct {
		url   string
		nodes []*redistest.Server
	}{"cluster": {c.URL(), c.Nodes}, "sentinel": {w.URL(), w.Servers[:1]}} {
		t.Run(name, func(t *testing.T) {
			url := engine.url
			is := redistest.Parallel(t)
			shellAt(t, is, url, "p").lists()
			shellAt(t, is, url, "p2").works()
			shellAt(t, is, url, "p3").recurs()
			out, status := command(t, "", "bench", "--redis", url, "--tasks", "200", "--json")
			is.Equal(status, exitWell)
			is.True(strings.Contains(out, `"finished_per_second":`))
			ahead := redistest.Sure((&broker{url: url}).ahead(t.Context()))(t)
			is.True(ahead.Abs() < time.Minute) // the clock is the same, but the machine may be busy
			var shown bytes.Buffer
			is.NoErr((&demoCommand{Redis: url, Seconds: 6, Plain: true}).Run(t.Context(), &shown))
			is.Equal(figures(t, shown.String())["lost"], 0)
			for _, n := range engine.nodes {
				is.Equal(redistest.Keys(t, redistest.Dial(t, n.URL()), "worqr-demo-*"), nil) // nothing is left on any node
			}
		})
	}
}

// lists tests the commands that show and change queues.
func (s *shell) lists() {
	s.Helper()
	for _, queue := range []string{"a", "b", "c", "d"} { // on several nodes
		s.run(exitWell, "enqueue", queue, "x", "y")
	}
	s.is.Equal(all(s.rows(exitWell, "queues"), "waiting"), []any{2., 2., 2., 2.})
	s.is.Equal(s.rows(exitWell, "stats")[0]["waiting"], 8.)
	s.is.Equal(len(s.rows(exitWell, "waiting", "a")), 2)
	s.run(exitWell, "enqueue", "d", "z", "--key", "k", "--in", "1h")
	s.is.Equal(all(s.rows(exitWell, "scheduled", "d"), "key"), []any{"k"})
	s.run(exitWell, "remove", "d", "k")
	s.run(exitWell, "pause", "a", "b")
	s.is.True(strings.Contains(s.run(exitWell, "explain", "a", "x"), "paused"))
	s.run(exitWell, "resume", "a")
	s.run(exitWell, "drain", "a", "b")
	s.run(exitWell, "cancel", "b", "x")
	s.run(exitWell, "delete", "c", "--yes", "c")
	s.is.Equal(all(s.rows(exitWell, "queues"), "waiting"), []any{2., 1., 2.}) // a deleted queue is no longer listed
	s.run(exitUnwell, "pause", "c")
	s.run(exitWell, "resume", "a", "b")
	for _, queue := range []string{"a", "b", "d"} {
		s.is.True(strings.Contains(s.run(exitWell, "explain", queue, "y"), "Waiting on"))
	}
	report := s.run(exitUnwell, "check", "--repair")
	s.is.True(strings.Count(report, "warning (no-worker)") == 3 && strings.Contains(report, " queues: 0 errors"))
	s.is.Equal(s.bare(append(append([]string{"complete", "zsh", "queues"}, s.args[:4]...), "")...), "a\nb\nd\n")
	v := s.terminal("top", "--every", "100ms")
	v.awaits("no worker")
	v.press("q")
}

// works tests the commands that need a worker.
func (s *shell) works() {
	s.Helper()
	lines, watched := s.watching()
	s.is.True(strings.Contains(s.next(lines), "sync"))
	c := s.program("work", "q", "--prefix", s.args[3], "--lease", "1s", "--max-retries", "0", "--", "sh", "-c", `[ "$(cat)" != bad ]`)
	s.is.NoErr(c.Start())
	keys := all(s.rows(exitWell, "enqueue", "q", "good", "bad", "--keep-result", "1h"), "key")
	for !strings.Contains(s.next(lines), `"queue":"q"`) {
	}
	s.is.Equal(<-watched, exitWell)
	s.run(exitWell, "wait", "q", keys[0].(string))
	s.run(exitUnwell, "wait", "q", keys[1].(string))
	s.is.Equal(s.rows(exitWell, "result", "q", keys[0].(string))[0]["outcome"], "finished")
	s.is.Equal(len(s.rows(exitWell, "running")), 0)
	s.is.Equal(s.rows(exitWell, "failed", "q", "--group")[0]["tasks"], 1.)
	s.run(exitWell, "pause", "q")
	s.run(exitWell, "failed", "q", "--requeue", "--yes", "q")
	s.is.Equal(len(s.rows(exitWell, "failed", "q")), 0)
	s.is.Equal(len(s.rows(exitWell, "waiting", "q")), 1)
	s.run(exitUnwell, "requeue", "q", "--all")
	worker := s.rows(exitWell, "workers")[0]["id"].(string)
	s.run(exitWell, "fail-worker", worker, "--yes", worker)
	s.run(exitWell, "sweep")
	s.is.NoErr(c.Process.Signal(syscall.SIGTERM))
	s.is.NoErr(c.Wait())
}

// recurs tests the commands that show and run recurring tasks.
func (s *shell) recurs() {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	q, starts := s.peer.Queue("q"), make(chan string, 9)
	s.is.NoErr(q.Every("nightly", worqr.Interval(24*time.Hour), []byte("back up"), nil))
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		starts <- string(t.Payload)
		return nil
	}, nil)
	ran := make(chan error, 1)
	go func() { ran <- s.peer.Run(ctx) }()
	peertest.Eventually(s, "something recurs", func() bool { return redistest.Sure(q.RunNow(ctx, "nightly"))(s.T) })
	s.is.Equal(<-starts, "back up")
	s.is.Equal(all(s.rows(exitWell, "recurring"), "key"), []any{"nightly"})
	s.run(exitWell, "run-now", "q", "nightly")
	s.is.Equal(<-starts, "back up")
	stop()
	s.is.NoErr(<-ran)
}
