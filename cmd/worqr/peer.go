package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

const (
	demoQueue = "media"
	slots     = 4 // tasks that a peer runs at once
)

// A peerCommand is one peer of the demo, in a process of its own. It ends when
// its input does, and so when the demo is killed.
type peerCommand struct {
	Redis  string        `env:"REDIS_URL" required:""` // not in the arguments, where others would see a password
	Prefix string        `required:""`
	Name   string        `required:""`
	Lease  time.Duration `required:""`
	Pause  time.Duration `required:""` // before the first retry; then doubling

	// Address is a file. Without it, invoices fail for lack of an address.
	Address string `required:""`
}

// A report is what a peer sends the demo, one JSON object per line.
type report struct {
	Kind    reportKind
	Worker  string
	At      time.Time
	Payload []byte        `json:",omitempty"`
	Retries int           `json:",omitempty"`
	Reason  string        `json:",omitempty"`
	Pause   time.Duration `json:",omitempty"`
	Count   int           `json:",omitempty"`
}

type reportKind string

const (
	reportStarted  reportKind = "started"  // the handler has started Payload, after Retries
	reportFailed   reportKind = "failed"   // it ends with Reason; Payload is retried after Pause
	reportCanceled reportKind = "canceled" // the handler of Payload got ErrCanceled
	reportReturned reportKind = "returned" // Count tasks of a dead peer were put back
)

// Run serves the queue until the input ends.
func (c *peerCommand) Run(ctx context.Context, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C goes to all processes at the terminal; the demo decides
	p, err := worqr.Open(c.Redis, &worqr.Options{
		Prefix: c.Prefix, Name: c.Name, Lease: c.Lease, Drain: time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	m := &mouth{as: c, peer: p, out: json.NewEncoder(out)}
	p.Queue(demoQueue).Handle(m.handle, &worqr.HandleOptions{Concurrency: slots, Grace: time.Second, Backoff: c.backoff})

	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end or error is the end
		end()
	}()
	var watching sync.WaitGroup
	watching.Go(func() { m.watch(ctx) })
	err = p.Run(ctx)
	end()
	watching.Wait()
	return errors.Join(err, p.Close())
}

// backoff is the pause before a retry.
func (c *peerCommand) backoff(t *worqr.Task, _ error) time.Duration { return c.Pause << t.Retries }

// A mouth reports to the demo what its peer does.
type mouth struct {
	as   *peerCommand
	peer *worqr.Peer

	mu  sync.Mutex // protects out
	out *json.Encoder
}

// say writes a report. Once written it reaches the demo, even if this process is
// killed right after. When the demo no longer reads, the input ends as well.
func (m *mouth) say(r report) {
	r.Worker, r.At = m.peer.WorkerID(), time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.out.Encode(r)
}

// handle runs a task: it waits as long as the job takes.
func (m *mouth) handle(ctx context.Context, t *worqr.Task) error {
	j, err := readJob(t.Payload)
	if err != nil {
		return worqr.Malformed(fmt.Errorf("not a job: %w", err))
	}
	m.say(report{Kind: reportStarted, Payload: t.Payload, Retries: t.Retries})
	select {
	case <-time.After(j.takes):
		return m.end(j, t)
	case <-ctx.Done():
		cause := context.Cause(ctx)
		if errors.Is(cause, worqr.ErrCanceled) {
			m.say(report{Kind: reportCanceled, Payload: t.Payload})
		}
		return cause
	}
}

// end returns how an uninterrupted task ends.
func (m *mouth) end(j job, t *worqr.Task) error {
	switch {
	case j == mail && t.Retries < flaws:
		m.say(report{Kind: reportFailed, Payload: t.Payload, Retries: t.Retries, Reason: errBusy.Error(), Pause: m.as.backoff(t, errBusy)})
		return errBusy
	case j == invoice:
		if _, err := os.Stat(m.as.Address); err != nil {
			return worqr.Permanent(errNowhere)
		}
	}
	return nil
}

var (
	errBusy    = errors.New("the mail server is busy")
	errNowhere = errors.New("the customer has no address")
)

// watch reports tasks that the peer has returned from dead peers. The library
// counts them and has no hook for it, so this polls the count.
func (m *mouth) watch(ctx context.Context) {
	seen := int64(0)
	_ = every(ctx, 20*time.Millisecond, func() (bool, error) {
		if n := m.peer.Stats().TasksReturned; n > seen {
			m.say(report{Kind: reportReturned, Count: int(n - seen)})
			seen = n
		}
		return false, nil
	})
}
