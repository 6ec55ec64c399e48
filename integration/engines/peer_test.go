package engines

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

const (
	prefix = "p"
	user   = "worker-p" // as whom peers work on Sentinel
	queue  = "q"
)

// A config tells a peer process, which is this program started again, what to do.
type config struct {
	URL, Name string
	Parts     int // over which the queue is spread; 0: it isn't
}

// A report says what a peer is about to do, or what came of it.
type report struct {
	At      int64 // by mono
	What    what
	Task    string   `json:",omitempty"` // the payload
	Tasks   []string `json:",omitempty"`
	Key     string   `json:",omitempty"`
	Attempt string   `json:",omitempty"`
	Token   int64    `json:",omitempty"`
	Note    string   `json:",omitempty"`
}

type what string

const (
	up        what = "up"      // the peer works under an id, which is Note
	try       what = "try"     // Tasks are about to be enqueued; one that has a Key may be replaced
	okay      what = "okay"    // they were
	refused   what = "refused" // they were not. With neither, the outcome is unknown
	cancel    what = "cancel"
	canceled  what = "canceled" // and nothing runs any more
	began     what = "began"    // a handler, with an Attempt and its Token
	told      what = "told"     // its context has ended
	finishing what = "finishing"
	done      what = "done"     // Redis has stored its end
	stale     what = "stale"    // Redis has refused it
	again     what = "again"    // it will be retried
	returned  what = "returned" // the handler, and its peer is to finish the task
	lost      what = "lost"     // Redis has lost writes, the peer says
	quiet     what = "quiet"    // nothing is enqueued any more
)

// A peer serves the queue, and also acts as a producer.
type peer struct {
	config
	peer  *worqr.Peer
	queue *worqr.Queue

	mu  sync.Mutex // protects the output
	out *json.Encoder
}

func peerMain(c config) int {
	if err := serve(c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(c config) error {
	p, err := worqr.Open(c.URL, &worqr.Options{Prefix: prefix, Name: c.Name, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	me := &peer{config: c, peer: p, queue: p.Queue(queue), out: json.NewEncoder(os.Stdout)}
	if c.Parts > 0 {
		me.queue = me.queue.Spread(c.Parts)
	}
	me.queue.Handle(me.handle, &worqr.HandleOptions{Concurrency: 8, MaxCrashes: -1, MaxRetries: 1000})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	producing, calm := context.WithCancel(ctx)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			calm() // the only thing it can be told
		}
	}()
	go me.produce(producing)
	go me.identify(ctx)
	go me.listen(ctx)
	return p.Run(ctx)
}

func (p *peer) say(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.At = mono()
	_ = p.out.Encode(r) // else nobody listens any more
}

// identify reports the peer's id whenever it changes.
func (p *peer) identify(ctx context.Context) {
	for id := ""; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) { // between two looks
		if now := p.peer.WorkerID(); now != id {
			id = now
			p.say(report{What: up, Note: id})
		}
	}
}

// listen says when the peer has noticed that Redis has lost writes.
func (p *peer) listen(ctx context.Context) {
	for ctx.Err() == nil {
		for e, err := range p.peer.Events(ctx, queue) {
			if err == nil && e.Kind == inspect.EventLost {
				p.say(report{What: lost, Note: e.Evidence})
			}
		}
		time.Sleep(50 * time.Millisecond) // before the next try
	}
}

var errOnceMore = errors.New("once more")

func (p *peer) handle(ctx context.Context, t *worqr.Task) error {
	of := report{Task: string(t.Payload), Key: t.Key, Attempt: t.AttemptID, Token: t.Token}
	say := func(w what, note string) { of.What, of.Note = w, note; p.say(of) }
	say(began, "")
	select {
	case <-time.After(rand.N(60 * time.Millisecond)):
	case <-ctx.Done():
		say(told, fmt.Sprint(context.Cause(ctx)))
		return context.Cause(ctx)
	}
	switch {
	case rand.IntN(30) == 0 && t.Retries == 0:
		say(again, "")
		return worqr.RetryAfter(errOnceMore, 20*time.Millisecond)
	case rand.IntN(4) == 0:
		say(returned, "")
		return nil
	}
	say(finishing, "")
	for {
		within, stop := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		err := t.Finish(within)
		stop()
		switch {
		case err == nil:
			say(done, "")
			return nil
		case errors.Is(err, worqr.ErrNotOwner), errors.Is(err, worqr.ErrEvicted), errors.Is(err, worqr.ErrCanceled), errors.Is(err, worqr.ErrShutdown):
			say(stale, err.Error())
			return nil
		}
		time.Sleep(20 * time.Millisecond) // before it asks again
	}
}

// produce enqueues tasks in every possible way until ctx ends. It completes calls in flight, so an
// uncertain outcome always comes from a kill or a lost reply.
func (p *peer) produce(ctx context.Context) {
	var cancels sync.WaitGroup
	for n := 1; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s/%d", p.Name, n)
		switch k := rand.IntN(24); {
		case k >= 22:
			p.enqueue([]string{name + "a", name + "b"}, "", func(c context.Context) error {
				_, err := p.queue.AddMany(c, []worqr.TaskSpec{{Payload: []byte(name + "a")}, {Payload: []byte(name + "b")}})
				return err
			})
		case k >= 20:
			p.add(name)
		case k < 2: // with a nonce: to be repeated until it is certain
			p.once(name)
		case k < 4: // under a key that nobody else has
			p.enqueue([]string{name}, "", func(c context.Context) error { return p.queue.Put(c, "own "+name, []byte(name), nil) })
		case k < 8: // under one of a few keys, where each replaces the one before
			key := fmt.Sprintf("%s/k%d", p.Name, k)
			p.enqueue([]string{name}, key, func(c context.Context) error { return p.queue.Put(c, key, []byte(name), nil) })
		case k < 10:
			for range 2 {
				p.enqueue([]string{name}, "", func(c context.Context) error { return p.queue.EnqueueUnique(c, []byte(name)) })
			}
		case k < 12:
			if p.enqueue([]string{name}, "", func(c context.Context) error { return p.queue.Enqueue(c, []byte(name)) }) {
				cancels.Go(func() { p.cancel(name) })
			}
		default:
			names := []string{name + "a", name + "b", name + "c"}[:1+rand.IntN(3)]
			var payloads [][]byte
			for _, n := range names {
				payloads = append(payloads, []byte(n))
			}
			p.enqueue(names, "", func(c context.Context) error { return p.queue.Enqueue(c, payloads...) })
		}
		time.Sleep(rand.N(80 * time.Millisecond)) // the pace of the load
	}
	cancels.Wait()
	p.say(report{What: quiet})
}

// add adds a task with a header.
func (p *peer) add(name string) {
	p.enqueue([]string{name}, "", func(c context.Context) error {
		_, err := p.queue.Add(c, []byte(name), &worqr.Properties{Headers: map[string]string{"of": name}})
		return err
	})
}

func (p *peer) enqueue(tasks []string, key string, do func(context.Context) error) bool {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	p.say(report{What: try, Tasks: tasks, Key: key})
	err := do(ctx)
	switch {
	case err == nil:
		p.say(report{What: okay, Tasks: tasks, Key: key})
		return true
	case !errors.Is(err, worqr.ErrUnknownOutcome):
		p.say(report{What: refused, Tasks: tasks, Key: key, Note: err.Error()})
	}
	return false
}

func (p *peer) once(name string) {
	p.say(report{What: try, Tasks: []string{name}})
	for perhaps := false; ; {
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := p.queue.EnqueueOnce(ctx, name, []byte(name))
		stop()
		switch {
		case err == nil:
			p.say(report{What: okay, Tasks: []string{name}})
			return
		case errors.Is(err, worqr.ErrUnknownOutcome):
			perhaps = true
			continue
		case !perhaps:
			p.say(report{What: refused, Tasks: []string{name}, Note: err.Error()})
			return
		}
		time.Sleep(20 * time.Millisecond) // before it asks again
	}
}

// cancel cancels a task that was enqueued a moment ago, and waits until it's no longer running.
func (p *peer) cancel(name string) {
	time.Sleep(rand.N(100 * time.Millisecond)) // some run by then
	p.say(report{What: cancel, Task: name})
	for {
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		r, err := p.queue.Cancel(ctx, []byte(name))
		if err == nil {
			err = r.Wait(ctx)
		}
		stop()
		if err == nil {
			p.say(report{What: canceled, Task: name})
			return
		}
		if errors.Is(err, worqr.ErrShutdown) {
			return
		}
		time.Sleep(20 * time.Millisecond) // before it asks again
	}
}
