// Package load has peers that put load on queues, run in processes that tests kill,
// and accounts of what these peers report.
package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/store"
)

// A Config configures a peer.
type Config struct {
	Name   string
	URL    string
	Prefix string
	Lease  time.Duration
	Seed   uint64

	Queue string
}

const (
	nap     = 60 * time.Millisecond // the longest time a handler takes
	every   = 60 * time.Millisecond // between two enqueues
	batch   = 3                     // most tasks of an enqueue
	cancels = 12                    // one of this many enqueues is canceled
)

// A peer enqueues and handles tasks. It reports each operation before it begins, and its result.
type peer struct {
	Config
	peer    *worqr.Peer
	queue   *worqr.Queue
	pending sync.WaitGroup // cancels, and calls of Wait

	mu  sync.Mutex // protects the output
	out *json.Encoder
}

// Main is the main function of a peer, which serves until SIGTERM.
func Main(c Config, o worqr.Options) int {
	err := run(c, &o)
	switch {
	case err == nil:
		return 0
	case strings.Contains(err.Error(), "Redis didn't confirm it"), store.IsAway(err): // Redis was away when it was to start or end
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Warn("ended", "err", err)
	default:
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

func run(c Config, o *worqr.Options) error {
	o.Prefix, o.Name, o.Lease = c.Prefix, c.Name, c.Lease
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	opened, err := worqr.Open(c.URL, o)
	if err != nil {
		return err
	}
	p := &peer{Config: c, peer: opened, out: json.NewEncoder(os.Stdout)}
	p.queue = p.peer.Queue(c.Queue)
	p.handle()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	producing, calm := context.WithCancel(ctx)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			calm() // the only line it can receive
		}
	}()
	go p.identify(ctx)
	go p.listen(ctx)
	defer Watch(c.Lease, p.say)()
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		p.produce(ctx, producing)
	}()
	err = p.peer.Run(ctx)
	<-produced
	return errors.Join(err, p.peer.Close())
}

func (p *peer) say(e Event) {
	e.Peer, e.Worker, e.Wall = p.Name, p.peer.WorkerID(), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Mono = Mono()
	_ = p.out.Encode(e) // fails if the reader has gone
}

// identify reports each id under which the peer works.
func (p *peer) identify(ctx context.Context) {
	for id := ""; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { // poll
		if now := p.peer.WorkerID(); now != id {
			id = now
			p.say(Event{Op: OpUp})
		}
	}
}

// Watch reports when the machine doesn't let this process run for a third of a lease, so that a
// peer may be evicted without a fault. end stops it.
func Watch(lease time.Duration, say func(Event)) (end func()) {
	const between = 10 * time.Millisecond // polls
	stop := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for last := Mono(); ; {
			select {
			case <-stop:
				return
			case <-time.After(between):
			}
			now := Mono()
			if waited := now - last; time.Duration(waited) > between+lease/3 {
				say(Event{Mono: now, Op: OpLate, Waited: waited})
			}
			last = now
		}
	})
	return func() {
		close(stop)
		over.Wait()
	}
}

// dice returns a random source that depends only on the seed and a name: of a task, whoever runs it
// and however often, or of a peer.
func dice(name string, seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func noteOf(cause error) string {
	switch {
	case errors.Is(cause, worqr.ErrCanceled):
		return NoteCanceled
	case errors.Is(cause, worqr.ErrEvicted), errors.Is(cause, worqr.ErrLeaseExpired):
		return NoteEvicted
	case errors.Is(cause, worqr.ErrShutdown):
		return NoteShutdown
	}
	return cause.Error()
}

var (
	errAgain = errors.New("once more")
	errWrong = errors.New("it is wrong")
)

// handle serves the queue. Half of the handlers finish their tasks themselves, to learn the result.
// They do so even after they have lost the task: that is a stale write, which must be refused.
func (p *peer) handle() {
	p.queue.Handle(func(ctx context.Context, t *worqr.Task) error {
		task := string(t.Payload)
		d := dice(task, p.Seed)
		note := func(op string, phase Phase, word string) {
			p.say(Event{Op: op, Phase: phase, Note: word, Tasks: []string{task}, Process: t.AttemptID, Token: t.Token})
		}
		note(OpRun, Invoke, carries(t, task))
		select {
		case <-time.After(rand.N(nap)):
		case <-ctx.Done():
		}
		cause := context.Cause(ctx)
		if cause != nil {
			note(OpEnded, Okay, noteOf(cause))
			if errors.Is(cause, worqr.ErrCanceled) || errors.Is(cause, worqr.ErrShutdown) {
				return cause
			}
		}
		own, again, fail := d.IntN(2) == 0, d.IntN(20) == 0, d.IntN(100) == 0
		switch {
		case cause == nil && again && t.Retries == 0:
			note(OpRun, Okay, NoteRetry)
			return worqr.RetryAfter(errAgain, upTo(d, 100*time.Millisecond))
		case cause == nil && fail:
			note(OpRun, Okay, NoteFail)
			return worqr.Permanent(errWrong)
		case cause != nil || own:
			note(OpFinish, Invoke, "")
			finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			err := t.Finish(finish)
			cancel()
			end := Event{}.after(err)
			if end.Phase == Refused && !errors.Is(err, worqr.ErrNotOwner) {
				end.Phase = Unknown // Redis was silent: what the handler returns ends the task
			}
			note(OpFinish, end.Phase, end.Note)
		}
		note(OpRun, Okay, "")
		return cause
	}, &worqr.HandleOptions{Concurrency: 8, MaxCrashes: -1, KeepFailed: 1_000_000})
}

// after returns the event of an operation's end.
func (e Event) after(err error) Event {
	switch {
	case err == nil:
		e.Phase = Okay
		return e
	case errors.Is(err, worqr.ErrUnknownOutcome):
		e.Phase = Unknown
	default:
		e.Phase = Refused
	}
	e.Note = err.Error()
	return e
}

// produce enqueues tasks, in every way there is, until ctx ends.
func (p *peer) produce(serving, ctx context.Context) {
	d := dice(p.Name, p.Seed)
	for n := 0; ctx.Err() == nil; {
		var tasks []string
		for range 1 + d.IntN(batch) {
			n++
			tasks = append(tasks, fmt.Sprintf("%s/%d", p.Name, n))
		}
		key, alone := p.enqueue(serving, d, tasks)
		if d.IntN(cancels) == 0 && alone {
			after, remove := upTo(d, nap), key != "" && d.IntN(2) == 0 // some run by then
			p.pending.Go(func() { p.cancel(tasks[0], key, after, remove) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(upTo(d, 2*every)):
		}
	}
	p.pending.Wait()
	p.say(Event{Op: OpCalm})
}

// patience is how long a call may wait for Redis.
const patience = 20 * time.Second

// enqueue returns the key of the first task if that key can cancel it. If alone is false, another
// task has the same payload or key, and it can't be canceled.
func (p *peer) enqueue(serving context.Context, d *rand.Rand, tasks []string) (key string, alone bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q, way := p.queue, d.IntN(18)
	if way < 2 || way == 10 || way >= 12 {
		tasks = tasks[:1]
	}
	try := func(key string, do func() error) {
		e := Event{Op: OpEnqueue, Phase: Invoke, Tasks: tasks, Key: key}
		p.say(e)
		p.say(e.after(do()))
	}
	payloads := payloads(tasks)
	put := func(key string) error {
		_, err := q.Add(ctx, worqr.TaskSpec{Key: key, Payload: payloads[0], At: time.Now().Add(upTo(d, 100*time.Millisecond))})
		return err
	}
	switch {
	case way < 2: // under a key of its own
		key = "key of " + tasks[0]
		try("", func() error { return put(key) })
	case way < 4: // with a nonce
		try("", func() error {
			return p.certainly(ctx, func() error { _, err := q.EnqueueOnce(ctx, tasks[0], payloads...); return err })
		})
	case way >= 16:
		for range 2 {
			try("", func() error { _, err := q.Add(ctx, worqr.TaskSpec{Payload: payloads[0], Unique: true}); return err })
		}
		return "", false
	case way >= 12: // under one of a few keys, where each replaces the previous one
		shared := fmt.Sprintf("%s/k%d", p.Name, way)
		try(shared, func() error { return put(shared) })
		return "", false
	case way >= 10:
		try("", func() (err error) { key, err = p.add(ctx, serving, d, tasks); return err })
	default:
		try("", func() error { return q.Enqueue(ctx, payloads...) })
	}
	return key, true
}

// certainly repeats an idempotent call until its outcome is known.
func (p *peer) certainly(ctx context.Context, do func() error) error {
	for perhaps := false; ; perhaps = true {
		err := do()
		if errors.Is(err, worqr.ErrUnknownOutcome) && ctx.Err() == nil {
			continue
		}
		if err != nil && perhaps {
			err = fmt.Errorf("%w: %w", worqr.ErrUnknownOutcome, err)
		}
		return err
	}
}

func payloads(tasks []string) (all [][]byte) {
	for _, t := range tasks {
		all = append(all, []byte(t))
	}
	return all
}

func upTo(d *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(most)))
}

// cancel cancels or removes a task that exists once.
func (p *peer) cancel(task, key string, after time.Duration, remove bool) {
	time.Sleep(after)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e := Event{Op: OpCancel, Phase: Invoke, Tasks: []string{task}}
	p.say(e)
	var report *worqr.CancelReport
	var removed bool
	var err error
	switch {
	case remove:
		removed, err = p.queue.RemoveKey(ctx, key)
	case key != "":
		report, err = p.queue.CancelKey(ctx, key)
	default:
		report, err = p.queue.Cancel(ctx, []byte(task))
	}
	p.say(e.after(err))
	if err != nil {
		return
	}
	if report != nil {
		if report.Wait(ctx) != nil {
			return
		}
		removed = report.Removed > 0
	}
	e.Op, e.Phase = OpGone, Okay
	switch {
	case removed:
	case remove:
		e.Note = NoteKept
	default:
		e.Note = NoteStopped
	}
	p.say(e)
}
