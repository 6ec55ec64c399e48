package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A peerSpec says what a peer in a process of its own does: this program, started once more.
type peerSpec struct {
	Name   string // its own, and that of its journal
	URL    string
	Prefix string
	Dir    string // of journals
	Lease  time.Duration
	Seed   uint64

	Queues      []string
	Concurrency int
	Nap         time.Duration // the longest that a handler takes, on the first queue; on the others it takes nothing
	Every       time.Duration // between two enqueues; 0: none
	Batch       int           // tasks of an enqueue at most; 0: one
	Size        int           // of payloads; 0: as short as they may be
	Cancels     int           // one in so many enqueues is canceled; 0: none
	Faults      bool          // some handlers fail
}

// A chaotic is a peer at work: it enqueues, handles what anybody has enqueued, and
// writes down all it does before it does it, and what came of it.
type chaotic struct {
	spec    peerSpec
	peer    *worqr.Peer
	journal *journal
	calm    atomic.Bool
	pending sync.WaitGroup // of cancels, and of who waits for ends
}

// The lines that a peer and the driver say to each other.
const (
	sayServing = "serving"
	sayCalm    = "calm"
)

// peerMain is the main function of a peer, which serves until SIGTERM.
func peerMain(spec peerSpec) int {
	if err := runPeer(spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runPeer(spec peerSpec) error {
	journal, err := openJournal(filepath.Join(spec.Dir, spec.Name+journalEnding))
	if err != nil {
		return err
	}
	defer journal.close()
	peer, err := worqr.Open(spec.URL, &worqr.Options{
		Prefix: spec.Prefix, Name: spec.Name, Lease: spec.Lease, TLSConfig: redistest.TLS(spec.URL),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	c := &chaotic{spec: spec, peer: peer, journal: journal}
	for i, name := range spec.Queues {
		c.handle(name, i > 0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go c.listen()
	go c.identify(ctx)
	defer watch(spec.Lease, c.say)()
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		c.produce(ctx)
	}()
	err = peer.Run(ctx)
	<-produced
	return errors.Join(err, peer.Close())
}

const saysLost = "chaos: this peer has noticed lost writes"

// listen hears the driver.
func (c *chaotic) listen() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == sayCalm {
			c.calm.Store(true)
		}
	}
}

// identify writes down under which id the peer works, whenever that changes, and when it notices that
// Redis has lost writes, which its log says once for several failovers that follow soon. It tells the
// driver once the peer serves.
func (c *chaotic) identify(ctx context.Context) {
	go func() {
		for ; ctx.Err() == nil && !c.serves(ctx); time.Sleep(100 * time.Millisecond) { // between two looks
		}
		fmt.Printf("%q\n", sayServing)
	}()
	lost, log := int64(0), slog.New(slog.NewTextHandler(os.Stderr, nil))
	for id := ""; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { // between two looks
		if now := c.peer.Stats().LostWrites; now > lost {
			lost = now
			log.Warn(saysLost, "times", lost)
		}
		if now := c.peer.WorkerID(); now != id {
			id = now
			c.say(event{Op: opUp})
		}
	}
}

// serves reports whether the peer is a member of its queues.
func (c *chaotic) serves(ctx context.Context) bool {
	for w, err := range c.peer.Workers(ctx) {
		if err != nil {
			return false
		}
		if w.ID == c.peer.WorkerID() {
			return len(w.Queues) == len(c.spec.Queues)
		}
	}
	return false
}

func (c *chaotic) say(e event) {
	e.Peer, e.Worker = c.spec.Name, c.peer.WorkerID()
	c.journal.say(e)
}

// dice are thrown for a name: of a task, whoever runs it, however often, or of a peer.
func dice(name string, seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // to memory
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// The causes of a handler's end, as they stand in a journal.
const (
	noteRetry    = "retry"
	noteFail     = "fail"
	noteCanceled = "canceled"
	noteEvicted  = "evicted"
	noteShutdown = "shutdown"
)

func noteOf(cause error) string {
	switch {
	case errors.Is(cause, worqr.ErrCanceled):
		return noteCanceled
	case errors.Is(cause, worqr.ErrEvicted), errors.Is(cause, worqr.ErrLeaseExpired):
		return noteEvicted
	case errors.Is(cause, worqr.ErrShutdown):
		return noteShutdown
	}
	return cause.Error()
}

var (
	errAgain = errors.New("once more")
	errWrong = errors.New("it is wrong")
)

// handle has the queue be served. Half of the handlers finish their tasks
// themselves, and so learn what came of it; also when they have been told that
// the task is no longer theirs, which is the stale write that must be refused.
func (c *chaotic) handle(name string, fast bool) {
	c.peer.Queue(name).Handle(func(ctx context.Context, t *worqr.Task) error {
		task := taskOf(string(t.Payload))
		d := dice(task, c.spec.Seed)
		of := event{Tasks: []string{task}, Process: t.AttemptID, Token: t.Token}
		note := func(op string, p phase, word string) {
			e := of
			e.Op, e.Phase, e.Note = op, p, word
			c.say(e)
		}
		note(opRun, invoke, carries(t, task))
		if nap := c.spec.Nap; !fast && nap > 0 {
			select {
			case <-time.After(rand.N(nap)):
			case <-ctx.Done():
			}
		}
		cause := context.Cause(ctx)
		if cause != nil {
			note(opEnded, okay, noteOf(cause))
			if errors.Is(cause, worqr.ErrCanceled) || errors.Is(cause, worqr.ErrShutdown) {
				return cause
			}
		}
		own, again, wrong := d.IntN(2) == 0, c.spec.Faults && d.IntN(20) == 0, c.spec.Faults && d.IntN(100) == 0
		switch {
		case cause == nil && again && t.Retries == 0:
			note(opRun, okay, noteRetry)
			return worqr.RetryAfter(errAgain, upTo(d, 100*time.Millisecond))
		case cause == nil && wrong:
			note(opRun, okay, noteFail)
			return worqr.Permanent(errWrong)
		case cause != nil || own:
			note(opFinish, invoke, "")
			finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			err := t.Finish(finish)
			cancel()
			note(opFinish, phaseOf(err), textOf(err))
		}
		note(opRun, okay, "")
		return cause
	}, &worqr.HandleOptions{Concurrency: c.spec.Concurrency, MaxCrashes: -1, KeepFailed: 1_000_000})
}

// phaseOf says what an error tells of an operation.
func phaseOf(err error) phase {
	switch {
	case err == nil:
		return okay
	case errors.Is(err, worqr.ErrUnknownOutcome):
		return unknown
	}
	return refused
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// produce enqueues tasks until it is told to be calm, in every way there is.
func (c *chaotic) produce(ctx context.Context) {
	d := dice(c.spec.Name, c.spec.Seed)
	for n := 0; c.spec.Every > 0 && ctx.Err() == nil && !c.calm.Load(); {
		q := c.peer.Queue(c.spec.Queues[d.IntN(len(c.spec.Queues))])
		var tasks []string
		for range 1 + d.IntN(max(c.spec.Batch, 1)) {
			n++
			tasks = append(tasks, fmt.Sprintf("%s/%d", c.spec.Name, n))
		}
		key := c.enqueue(ctx, d, q, tasks)
		if n := c.spec.Cancels; n > 0 && d.IntN(n) == 0 {
			after := upTo(d, c.spec.Nap+time.Millisecond) // some run by then
			c.pending.Go(func() { c.cancel(q, tasks[0], key, after) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(upTo(d, 2*c.spec.Every)):
		}
	}
	c.pending.Wait()
	fmt.Printf("%q\n", sayCalm)
}

// patience is how long a call waits for Redis at most.
const patience = 20 * time.Second

// enqueue returns the key of the first task if it was added; cancels know it by that.
func (c *chaotic) enqueue(serving context.Context, d *rand.Rand, q *worqr.Queue, tasks []string) (key string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	way := d.IntN(12)
	if way < 2 || way == 10 {
		tasks = tasks[:1]
	}
	payloads := make([][]byte, len(tasks))
	for i, t := range tasks {
		payloads[i] = fmt.Appendf(nil, "%-*s", c.spec.Size, t)
	}
	var err error
	c.say(event{Op: opEnqueue, Phase: invoke, Tasks: tasks})
	switch {
	case way < 2: // under a key, which nobody else has
		err = q.Put(ctx, "key of "+tasks[0], payloads[0], nil)
	case way < 4: // with a nonce: to be repeated until it is certain
		for perhaps := false; ; perhaps = true {
			_, err = q.EnqueueOnce(ctx, tasks[0], payloads...)
			if errors.Is(err, worqr.ErrUnknownOutcome) && ctx.Err() == nil {
				continue
			}
			if err != nil && perhaps {
				err = fmt.Errorf("%w: %w", worqr.ErrUnknownOutcome, err)
			}
			break
		}
	case way == 10:
		key, err = c.add(ctx, serving, d, q, tasks[0], payloads[0])
	case way == 11:
		key, err = c.addMany(ctx, q, tasks, payloads)
	default:
		err = q.Enqueue(ctx, payloads...)
	}
	c.say(event{Op: opEnqueue, Phase: phaseOf(err), Tasks: tasks, Note: textOf(err)})
	return key
}

// taskOf is the name of the task with a payload, which is filled up with spaces.
func taskOf(payload string) string {
	task, _, _ := strings.Cut(payload, " ")
	return task
}

func upTo(d *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(most)))
}

func (c *chaotic) cancel(q *worqr.Queue, task, key string, after time.Duration) {
	time.Sleep(after)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.say(event{Op: opCancel, Phase: invoke, Tasks: []string{task}})
	var err error
	if key != "" {
		_, err = q.CancelKey(ctx, key)
	} else {
		_, err = q.Cancel(ctx, fmt.Appendf(nil, "%-*s", c.spec.Size, task))
	}
	c.say(event{Op: opCancel, Phase: phaseOf(err), Tasks: []string{task}, Note: textOf(err)})
}
