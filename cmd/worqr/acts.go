package main

import (
	"context"
	"errors"
	"time"

	"github.com/worqr/worqr/internal/words"
)

// When things happen, as fractions of the whole time. A peer that dies is evicted
// at most one and a half leases later.
const (
	mailAt    = 0.04
	dueAt     = 0.17
	killAt    = 0.25
	invoiceAt = 0.33
	repairAt  = 0.60
	cancelAt  = 0.66
	stopAt    = 0.76
)

// act plays the story.
func (p *play) act(ctx context.Context) error {
	begun := time.Now()
	at := func(part float64) time.Time { return begun.Add(time.Duration(part * float64(p.total))) }
	if err := p.enqueue(ctx, film); err != nil {
		return err
	}
	f, err := p.tally.await(ctx, film.id, func(f fate) bool { return f.peer != 0 })
	if err != nil {
		return err
	}
	p.journal.add(plain, "", "%v starts on %s; it takes an hour", film, peerName(f.peer))
	if err := p.schedule(ctx, at(dueAt)); err != nil {
		return err
	}

	produced := make(chan struct{})
	go func() {
		defer close(produced)
		p.produce(ctx, at(stopAt))
	}()
	defer func() { <-produced }() // so that the tally is complete
	for _, next := range []struct {
		at  float64
		act func(context.Context) error
	}{
		{mailAt, func(ctx context.Context) error { return p.enqueue(ctx, mail) }},
		{killAt, func(ctx context.Context) error { return p.kill(ctx, f.peer) }},
		{invoiceAt, p.bill},
		{invoiceAt, p.wait},
		{repairAt, p.repair},
		{cancelAt, p.cancel},
	} {
		if err := until(ctx, at(next.at)); err != nil {
			return err
		}
		if err := next.act(ctx); err != nil {
			return err
		}
	}
	select {
	case <-produced:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return p.drain(ctx, at(1))
}

// until waits until t. If ctx has ended it fails, even if t has passed: an interrupted demo starts nothing new.
func until(ctx context.Context, t time.Time) error {
	select {
	case <-time.After(time.Until(t)):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// every calls look, with pauses, until it reports that it has seen enough.
func every(ctx context.Context, pause time.Duration, look func() (enough bool, err error)) error {
	looks := time.NewTicker(pause)
	defer looks.Stop()
	for {
		if enough, err := look(); enough || err != nil {
			return err
		}
		select {
		case <-looks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// bounded returns a context for calls that Ctrl-C must not cut off, since their
// outcome would then be unknown.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

func (p *play) enqueue(ctx context.Context, jobs ...job) error {
	payloads := make([][]byte, len(jobs))
	for i, j := range jobs {
		payloads[i] = j.payload()
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := p.queue.Enqueue(ctx, payloads...); err != nil {
		return err
	}
	for _, j := range jobs {
		p.tally.enqueued(j.id)
	}
	return nil
}

// produce enqueues photos faster than two peers can handle them.
func (p *play) produce(ctx context.Context, end time.Time) {
	id, count := backup.id+1, 2*peers*slots // so that all are busy from the start
	err := every(ctx, 200*time.Millisecond, func() (bool, error) {
		if time.Now().After(end) {
			return true, nil
		}
		var jobs []job
		for range count {
			jobs = append(jobs, photo(id))
			id++
		}
		count = 6 + id%3
		return false, p.enqueue(ctx, jobs...)
	})
	if err != nil {
		p.fail(err) // unless ctx has ended, which is a failure already
		return
	}
	p.journal.add(plain, "", "the producer stops, with %s left", words.Several(p.tally.sum().open(), "task"))
}

// kill kills the peer that runs the film.
func (p *play) kill(ctx context.Context, number int) error {
	p.children[number-1].kill()
	p.crew.killed(number)
	held := 0
	calling, cancel := bounded(ctx)
	defer cancel()
	for t, err := range p.queue.Running(calling) {
		if err != nil {
			return err
		}
		if j, err := readJob(t.Payload); err == nil && p.crew.number(t.WorkerID) == number {
			p.tally.orphaned(j.id)
			held++
		}
	}
	p.journal.add(bad, "kill -9", "%s is killed while it holds %s", peerName(number), words.Several(held, "task"))
	return nil
}

// wait waits until the film runs again.
func (p *play) wait(ctx context.Context) error {
	_, err := p.tally.await(ctx, film.id, func(f fate) bool { return f.returned })
	return err
}

// cancel cancels the film, wherever it runs now.
func (p *play) cancel(ctx context.Context) error {
	p.journal.add(special, "cancel", "%v is canceled", film)
	began := time.Now()
	ctx, done := bounded(ctx)
	defer done()
	report, err := p.queue.Cancel(ctx, film.payload())
	if err != nil {
		return err
	}
	if err := report.Wait(ctx); err != nil {
		return err
	}
	if report.Removed+report.Stopped > 0 {
		p.tally.canceled(film.id)
	}
	p.journal.add(special, "", "%s later no copy runs: %d stopped, %d removed, %d finished",
		ms(time.Since(began)), report.Stopped, report.Removed, report.Finished)
	return nil
}

// drain waits until all tasks have ended, but not after end.
func (p *play) drain(ctx context.Context, end time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, end, errEnd)
	defer cancel()
	err := p.tally.until(ctx, func() bool { return p.tally.add().open() == 0 })
	switch {
	case errors.Is(err, errEnd):
		p.journal.add(plain, "", "time is up; the peers finish their running tasks, and leave")
		return nil
	case err == nil:
		p.journal.add(good, "", "all tasks are finished; the peers leave")
	}
	return err
}

var errEnd = errors.New("timed out")
