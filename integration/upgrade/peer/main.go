// Command peer is a peer of package upgrade. It is built from this state of the repository and
// from an older one, so it uses only what both have.
package main

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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/child"
)

// A Config says what the peer does.
type Config struct {
	URL, Prefix, Name string
	Lease             time.Duration
	Added             bool // it adds tasks as only this state of the repository can
	Check             bool // it checks the fleet, says what it found, and ends
}

// A Report is a line that it says.
type Report struct {
	What    string // ready, try, okay, removed, canceled, kept, start, quiet, finding
	Payload string
	Token   int64 `json:",omitempty"`
}

func main() {
	config, given := child.Given[Config]()
	if !given {
		fmt.Fprintln(os.Stderr, "peer is started by the tests of integration/upgrade")
		os.Exit(2)
	}
	if err := serve(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A peer serves a queue, and does to it what producers do.
type peer struct {
	Config
	queue *worqr.Queue

	mu   sync.Mutex
	out  *json.Encoder
	next atomic.Int64 // numbers payloads
}

func serve(c Config) error {
	p, err := worqr.Open(c.URL, &worqr.Options{Prefix: c.Prefix, Name: c.Name, Lease: c.Lease, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	me := &peer{Config: c, queue: p.Queue("q"), out: json.NewEncoder(os.Stdout)}
	if c.Check {
		return errors.Join(me.check(p), p.Close())
	}
	me.queue.Handle(me.handle, &worqr.HandleOptions{Concurrency: 8, MaxCrashes: -1, MaxRetries: 1000})
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	producing, quiet := context.WithCancel(ctx)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			quiet() // that is all that it is told
		}
	}()
	go func() {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { me.produce(producing) })
		}
		all.Wait()
		me.say(Report{What: "quiet"})
	}()
	return p.Run(ctx)
}

func (p *peer) say(r Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(r) // else nobody listens any more
}

// check says what is wrong with the fleet.
func (p *peer) check(peer *worqr.Peer) error {
	report, err := peer.Check(context.Background(), nil)
	if err != nil {
		return err
	}
	for _, f := range report.Findings {
		if f.Severity == "error" {
			p.say(Report{What: "finding", Payload: f.String()})
		}
	}
	return nil
}

func (p *peer) handle(ctx context.Context, t *worqr.Task) error {
	p.say(Report{What: "start", Payload: string(t.Payload), Token: t.Token})
	nap := rand.N(15 * time.Millisecond)
	if rand.IntN(20) == 0 {
		nap = 300 * time.Millisecond // there is time to cancel it
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(nap):
	}
	if rand.IntN(15) == 0 {
		return worqr.RetryAfter(errors.New("it fails"), rand.N(20*time.Millisecond))
	}
	return nil
}

// produce adds tasks until ctx ends, and takes some back.
func (p *peer) produce(ctx context.Context) {
	for ctx.Err() == nil {
		p.one()
		time.Sleep(rand.N(10 * time.Millisecond))
	}
}

// add is of a file that the older state of the repository hasn't.
var add func(ctx context.Context, q *worqr.Queue, payload []byte) error

// one is one thing that a producer does, with a payload of its own. It is not cut off when
// production ends, so whatever isn't okay was killed.
func (p *peer) one() {
	ctx := context.Background()
	payload := fmt.Sprintf("%s-%d-%d", p.Name, os.Getpid(), p.next.Add(1))
	tries := []byte(payload)
	p.say(Report{What: "try", Payload: payload})
	var err error
	key := ""
	switch n := rand.IntN(10); {
	case n < 3 && p.Added && add != nil:
		err = add(ctx, p.queue, tries)
	case n < 4:
		err = p.queue.Enqueue(ctx, tries)
	case n < 5:
		_, err = p.queue.EnqueueOnce(ctx, payload, tries)
	case n < 7:
		err = p.queue.EnqueueUnique(ctx, tries)
	default:
		key = payload
		err = p.queue.Put(ctx, key, tries, &worqr.PutOptions{At: time.Now().Add(rand.N(100 * time.Millisecond))})
	}
	if err != nil {
		return // it may be there
	}
	p.say(Report{What: "okay", Payload: payload})
	switch n := rand.IntN(10); {
	case n == 0 && key != "":
		p.say(Report{What: "doubt", Payload: payload}) // until it is known
		if removed, err := p.queue.RemoveKey(ctx, key); err == nil && removed {
			p.say(Report{What: "removed", Payload: payload})
		} else if err == nil {
			p.say(Report{What: "kept", Payload: payload})
		}
	case n == 1:
		p.say(Report{What: "doubt", Payload: payload})
		p.cancel(ctx, payload)
	}
}

// cancel cancels a payload, of which there is one task.
func (p *peer) cancel(ctx context.Context, payload string) {
	report, err := p.queue.Cancel(ctx, []byte(payload))
	if err != nil || report.Wait(ctx) != nil {
		return
	}
	if report.Removed+report.Stopped > 0 {
		p.say(Report{What: "canceled", Payload: payload})
	} else {
		p.say(Report{What: "kept", Payload: payload})
	}
}
