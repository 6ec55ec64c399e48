package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/worqr/worqr"
)

const (
	peers = 3

	// When things happen, as parts of the whole time. A peer that dies is evicted at most one and a half leases
	// later. In short demos, the lease is a part of the time, too.
	killAt   = 0.25
	cancelAt = 0.66
	stopAt   = 0.76
	leaseFor = 0.22

	keepResults = time.Hour // longer than a demo
)

// A job is what a task of the demo does.
type job struct {
	Takes time.Duration
	Fails int // so many attempts fail
}

// The keys of two tasks.
const (
	film = "film"
	mail = "mail"
)

// A demo is one run of the demo.
type demo struct {
	total  time.Duration
	began  time.Time
	queue  *worqr.Queue
	peer   *worqr.Peer // enqueues, cancels and observes; serves nothing
	crew   []*child
	failed context.CancelCauseFunc

	mu       sync.Mutex // protects the fields below
	out      io.Writer
	keys     []string       // of the tasks that Redis has accepted
	runners  map[string]int // by key: the number of the peer that started the task last
	returned int            // tasks
	again    int            // tasks that started again because of the kill
	retried  int            // attempts
}

// show shows a demo that takes up to total, and fails when a task was lost.
func show(outer context.Context, total time.Duration, out io.Writer) (err error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // registrations of dead peers expire, as they do in Redis
	if err := server.Start(); err != nil {
		return fmt.Errorf("start a Redis in this process: %w", err)
	}
	defer server.Close()
	url := "redis://" + server.Addr()
	p, err := worqr.Open(url, &worqr.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	ctx, fail := context.WithCancelCause(outer)
	defer fail(nil)
	d := &demo{
		total: total, began: time.Now(),
		queue: p.Queue(demoQueue), peer: p, failed: fail, out: out, runners: map[string]int{},
	}
	d.say("an in-memory Redis starts; to watch, run in this directory: go run ./cmd/worqr top --redis %s", url)
	err = d.play(ctx, url)
	if err != nil && outer.Err() != nil {
		d.say("interrupted: the peers finish what they can, and leave")
		err = nil
	}
	if err = errors.Join(err, d.dismiss()); err != nil {
		return err
	}
	return d.sum(context.WithoutCancel(ctx))
}

// say prints what happens.
func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sayLocked(format, args...)
}

func (d *demo) sayLocked(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, "%5.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...)) // the summary fails, too
}

// play plays the story.
func (d *demo) play(ctx context.Context, url string) error {
	for n := range peers {
		c, err := spawn(n+1, url, min(3*time.Second, time.Duration(leaseFor*float64(d.total))), d.hear, d.failed)
		if err != nil {
			return err
		}
		d.crew = append(d.crew, c)
	}
	if err := d.assemble(ctx); err != nil {
		return err
	}
	if err := d.put(ctx, film, job{Takes: time.Hour}); err != nil {
		return err
	}
	first, err := d.runner(ctx, func(n int) bool { return n > 0 })
	if err != nil {
		return err
	}
	if err := d.put(ctx, mail, job{Takes: 100 * time.Millisecond, Fails: 2}); err != nil {
		return err
	}
	begun := time.Now()
	at := func(part float64) time.Time { return begun.Add(time.Duration(part * float64(d.total))) }
	var others sync.WaitGroup
	defer others.Wait()
	ctx, stop := context.WithDeadlineCause(ctx, at(1), errEnd)
	defer stop()
	others.Go(func() { d.produce(ctx, at(stopAt)) })
	others.Go(func() { d.count(ctx) })

	if err := until(ctx, at(killAt)); err != nil {
		return err
	}
	if err := d.kill(ctx, first); err != nil {
		return err
	}
	if _, err := d.runner(ctx, func(n int) bool { return n != first }); err != nil {
		return err
	}
	if err := until(ctx, at(cancelAt)); err != nil {
		return err
	}
	if err := d.cancel(ctx); err != nil {
		return err
	}
	if err := until(ctx, at(stopAt)); err != nil {
		return err
	}
	return d.drain(ctx)
}

// assemble waits until all peers serve the queue.
func (d *demo) assemble(ctx context.Context) error {
	return every(ctx, 10*time.Millisecond, func() (bool, error) {
		there := 0
		for w, err := range d.peer.Workers(ctx) {
			if err != nil {
				return false, err
			}
			for _, c := range d.crew {
				if w.Name == c.name() && len(w.Queues) > 0 {
					c.worker = w.ID
					there++
				}
			}
		}
		if there == peers {
			d.say("three peers serve the queue %q, each a process of its own", demoQueue)
		}
		return there == peers, nil
	})
}

// put enqueues a task, even if it's interrupted meanwhile: otherwise the outcome would be unknown.
func (d *demo) put(ctx context.Context, key string, j job) error {
	payload, err := json.Marshal(j)
	if err != nil {
		return err
	}
	_, err = d.queue.Add(context.WithoutCancel(ctx), worqr.TaskSpec{Key: key, Payload: payload, KeepResult: keepResults})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys = append(d.keys, key)
	return nil
}

// counted formats a number of tasks.
func counted(n int) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprint(n, " tasks")
}

// produce enqueues tasks faster than two peers can run them.
func (d *demo) produce(ctx context.Context, end time.Time) {
	n, count := 0, 2*peers*slots // so that all are busy from the start
	err := every(ctx, 200*time.Millisecond, func() (bool, error) {
		for range count {
			n++
			takes := time.Duration(100+n*73%300) * time.Millisecond // differs, and is the same in each demo
			if err := d.put(ctx, fmt.Sprintf("photo %03d", n), job{Takes: takes}); err != nil {
				return false, err
			}
		}
		count = 7
		return time.Now().After(end), nil
	})
	if err != nil {
		d.failed(err) // unless ctx has ended, which is a failure already
	}
}

// count prints the counts of the queue each second.
func (d *demo) count(ctx context.Context) {
	_ = every(ctx, time.Second, func() (bool, error) {
		s, err := d.queue.Stats(ctx)
		if err == nil {
			d.say("%d waiting, %d running", s.Waiting+s.Scheduled, s.Running)
		}
		return false, err // the story fails, too
	})
}

// hear is called for each report of a peer.
func (d *demo) hear(c *child, r report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.Event {
	case reportStarted:
		before := d.runners[r.Key]
		d.runners[r.Key] = c.number
		switch {
		case r.Retries > 0:
			d.retried++
			d.sayLocked("%s is retried on %s", r.Key, c.name())
		case before > 0:
			d.again++
			d.sayLocked("%s starts again, on %s", r.Key, c.name())
		case r.Key == film:
			d.sayLocked("%s starts on %s; it takes an hour", film, c.name())
		}
	case reportRetried:
		d.sayLocked("%s fails on %s: %s; retry in %v", r.Key, c.name(), r.Error, r.Pause.Round(time.Millisecond))
	case reportReturned:
		d.returned += r.Tasks
		d.sayLocked("%s returns %s to the front of the queue", c.name(), counted(r.Tasks))
	}
}

// runner waits until the number of the peer that started the film last is as wished, and returns it.
func (d *demo) runner(ctx context.Context, wished func(number int) bool) (number int, err error) {
	err = every(ctx, 10*time.Millisecond, func() (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		number = d.runners[film]
		return wished(number), nil
	})
	return number, err
}

// kill kills the peer with a number.
func (d *demo) kill(ctx context.Context, number int) error {
	c := d.crew[number-1]
	c.kill()
	held := 0
	for t, err := range d.queue.Running(ctx) {
		if err != nil {
			return err
		}
		if t.WorkerID == c.worker {
			held++
		}
	}
	d.say("%s is killed while it holds %s", c.name(), counted(held))
	return nil
}

// cancel cancels the film, wherever it runs now.
func (d *demo) cancel(ctx context.Context) error {
	d.say("%s is canceled", film)
	began := time.Now()
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer done()
	report, err := d.queue.CancelKey(ctx, film)
	if err != nil {
		return err
	}
	if err := report.Wait(ctx); err != nil {
		return err
	}
	d.say("%d ms later no copy runs", time.Since(began).Milliseconds())
	return nil
}

var (
	errEnd  = errors.New("timed out")
	errLost = errors.New("tasks were lost")
)

// drain waits until all tasks have ended, or time is up. It looks twice: a task that is put back may move while it looks.
func (d *demo) drain(ctx context.Context) error {
	started := int64(-1)
	err := every(ctx, 50*time.Millisecond, func() (bool, error) {
		s, err := d.queue.Stats(ctx)
		last := started
		if started = s.Tokens; s.Waiting+s.Scheduled+s.Running > 0 {
			started = -1
		}
		return started >= 0 && started == last, err
	})
	if context.Cause(ctx) == errEnd {
		d.say("time is up; the peers finish their running tasks, and leave")
		return nil
	}
	return err
}

// dismiss makes all peers leave at the same time.
func (d *demo) dismiss() error {
	errs := make([]error, len(d.crew))
	var leaving sync.WaitGroup
	for i, c := range d.crew {
		leaving.Go(func() { errs[i] = c.leave() })
	}
	leaving.Wait()
	return errors.Join(errs...)
}

// sum prints how each task has ended, as Redis has it. The peers have left, so it's the only one here.
func (d *demo) sum(ctx context.Context) error {
	finished, canceled, left := 0, 0, 0
	for _, key := range d.keys {
		r, err := d.queue.Result(ctx, key)
		switch {
		case errors.Is(err, worqr.ErrNotEnded):
			left++
		case errors.Is(err, worqr.ErrNoResult):
		case err != nil:
			return err
		case r.Outcome == worqr.OutcomeFinished:
			finished++
		case r.Outcome == worqr.OutcomeCanceled:
			canceled++
		}
	}
	lost := len(d.keys) - finished - canceled - left
	_, err := fmt.Fprintf(d.out, `
  %6d  enqueued
  %6d  finished
  %6d  canceled
  %6d  in the queue
  %6d  lost

  %6d  returned, after their peer was killed
  %6d  started again because of that: delivery is at least once
  %6d  retried, after attempts that failed
`, len(d.keys), finished, canceled, left, lost, d.returned, d.again, d.retried)
	if lost > 0 {
		err = errLost
	}
	return err
}
