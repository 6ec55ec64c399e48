package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/crash"
	"github.com/worqr/worqr/internal/redistest"
)

// A childConfig configures a peer that runs in a separate process.
type childConfig struct {
	URL, Prefix, Queue string
	Lease              time.Duration
	Concurrency        int
	Hold               bool          // handlers run until their context ends or the parent sends "finish"
	Mode               string        // a key of actors; "" is holder
	Nap                time.Duration // for deadly: how long the other tasks take
	First              time.Time     // for repeater: the first time of its job
}

// An actor is what a peer in a separate process does.
type actor struct {
	handler worqr.Handler
	opts    *worqr.HandleOptions
	told    func(line string)         // called with each line of its input
	act     func(ctx context.Context) // runs in a goroutine next to Run; may be nil
}

// A report is a line that a child writes.
type report struct {
	What    string // ready, start, end, finished
	Worker  string
	Payload string
	Key     string `json:",omitempty"`
	Err     string // for end: the cause; for finished: the kind of error
}

// serve is the main function of a peer process. It serves the queue until SIGTERM. With Hold, the
// line "finish" makes it finish every task that it runs, in the order of their tokens, even those
// that it no longer owns.
func serve(c childConfig) {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	p, err := worqr.Open(c.URL, &worqr.Options{Prefix: c.Prefix, Lease: c.Lease, TLSConfig: redistest.TLS(c.URL), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		panic(err)
	}
	say := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		r.Worker = p.WorkerID()
		_ = out.Encode(r) // fails if the parent has gone
	}
	a := holder(c, p, say)
	if make := actors[c.Mode]; make != nil {
		a = make(c, p, say)
	}
	p.Queue(c.Queue).Handle(a.handler, a.opts)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			a.told(lines.Text())
		}
	}()
	go func() {
		for p.Ready() != nil {
			time.Sleep(5 * time.Millisecond) // poll
		}
		say(report{What: "ready"})
	}()
	if a.act != nil {
		go a.act(ctx)
	}
	if err := p.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// holder returns the actor that runs its tasks, with Hold until it receives "finish".
func holder(c childConfig, _ *worqr.Peer, say func(report)) actor {
	finish := make(chan struct{})
	handler := func(ctx context.Context, t *worqr.Task) error {
		say(report{What: "start", Payload: string(t.Payload)})
		if !c.Hold {
			return nil
		}
		select {
		case <-finish:
			err := t.Finish(context.Background())
			kind := "nil"
			switch {
			case is_(err, worqr.ErrNotOwner):
				kind = "lost"
			case err != nil:
				kind = err.Error()
			}
			say(report{What: "finished", Payload: string(t.Payload), Err: kind})
			return err
		case <-ctx.Done():
			say(report{What: "end", Payload: string(t.Payload), Err: context.Cause(ctx).Error()})
			return ctx.Err()
		}
	}
	return actor{
		handler: handler,
		opts:    &worqr.HandleOptions{Concurrency: c.Concurrency},
		told: func(line string) {
			if line == "finish" {
				close(finish)
			}
		},
	}
}

// A process is a running child process.
type process struct{ *crash.Process[report] }

// spawn starts a peer in a separate process and waits until it serves.
func spawn(t testing.TB, c childConfig) process {
	t.Helper()
	p := launch(t, c)
	p.next(t, "ready")
	return p
}

// launch starts a peer in a separate process.
func launch(t testing.TB, c childConfig) process {
	t.Helper()
	c.URL = redistest.Worker(t, c.URL, c.Prefix)
	return process{crash.Launch[report](t, c)}
}

// next returns the next report, which must be of the given kind.
func (p process) next(t testing.TB, what string) report {
	t.Helper()
	r := p.Next()
	if r.What != what {
		t.Fatalf("the peer reports %+v, want %q", r, what)
	}
	return r
}

// starts returns the payloads of the next n reports, which must be starts.
func (p process) starts(t testing.TB, n int) []string {
	t.Helper()
	var all []string
	for range n {
		all = append(all, p.next(t, "start").Payload)
	}
	return all
}

var actors = map[string]func(c childConfig, p *worqr.Peer, say func(report)) actor{
	"busy":     busyPeer,
	"deadly":   deadlyPeer,
	"repeater": repeater,
}
