package main

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// hear processes a peer's report.
func (p *play) hear(c *child, r report) {
	p.crew.is(r.Worker, c.number)
	if r.Kind == reportReturned {
		p.comeback.returned(p.journal, c.name(), r.Count)
		return
	}
	j, err := readJob(r.Payload)
	if err != nil {
		p.fail(fmt.Errorf("%s reports: %w", c.name(), err))
		return
	}
	switch r.Kind {
	case reportStarted:
		p.started(c, j, r)
	case reportFailed:
		p.tally.tried(j.id, r.At)
		mark := "retry"
		if r.Retries > 0 {
			mark = "" // one mark is enough
		}
		p.journal.add(bad, mark, "%v fails on %s: %s; retry in %s", j, c.name(), r.Reason, ms(r.Pause))
	case reportCanceled:
		p.journal.add(special, "", "its handler on %s ends: context.Cause is worqr.ErrCanceled", c.name())
	}
}

// started records that a peer has started a task. It adds a note if that isn't
// the first time, or if the task was scheduled.
func (p *play) started(c *child, j job, r report) {
	before := p.tally.started(j.id, c.number, r.Retries, r.At)
	switch {
	case before.orphan:
		p.comeback.again(p.journal, fmt.Sprintf("%v starts again, on %s", j, c.name()))
	case r.Retries > before.retries:
		p.journal.add(good, "", "%v is retried on %s, %s later", j, c.name(), ms(r.At.Sub(before.tried)))
	case before.peer == 0 && !before.due.IsZero():
		p.journal.add(good, "due", "%v starts on %s, %s after its time", j, c.name(), ms(r.At.Sub(before.due)))
	}
}

// done records that Redis has stored the end of a task.
func (p *play) done(j job) {
	f := p.tally.finished(j.id)
	switch {
	case f.fixed:
		p.journal.add(good, "", "%v finishes in the end", j)
	case f.retries > 0:
		p.journal.add(good, "", "%v finishes on attempt %d", j, f.retries+1)
	}
}

// A comeback reports returned tasks in the order in which that happened: they
// start within a millisecond, on one peer, and the peer that returned them may
// take longer to report it.
type comeback struct {
	mu    sync.Mutex // protects the fields below
	told  bool
	early []string
}

func (b *comeback) returned(j *journal, peer string, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.add(good, "back", "%s notices, and returns %s to the front of the queue", peer, words.Several(count, "task"))
	for _, text := range b.early {
		j.add(good, "", "%s", text)
	}
	b.told, b.early = true, nil
}

func (b *comeback) again(j *journal, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.told {
		b.early = append(b.early, text)
		return
	}
	j.add(good, "", "%s", text)
}

// listen processes the events from Redis.
func (p *play) listen(ctx context.Context, listening chan<- struct{}) {
	synced := false
	for e, err := range p.peer.Events(ctx, demoQueue) {
		switch {
		case err != nil:
			continue // a sync follows
		case e.Kind == inspect.EventSync && !synced:
			synced = true
			close(listening)
		case e.Kind == inspect.EventSync:
			p.tally.gap()
		case e.Kind == inspect.EventDone:
			if j, err := readJob(e.Payload); err == nil {
				p.done(j)
			}
		case e.Kind == inspect.EventCancel && bytes.Equal(e.Payload, fence):
			close(p.fenced)
			return
		}
	}
}

// paint shows the state ten times a second, until ctx ends.
func (p *play) paint(ctx context.Context) {
	pic := &picture{total: p.total, where: p.broker.where}
	_ = every(ctx, 100*time.Millisecond, func() (bool, error) {
		p.look(ctx, pic)
		p.stage.paint(pic)
		return false, nil
	})
}

// look updates the picture. If Redis doesn't answer, the picture stays as it was:
// the acting code will notice.
func (p *play) look(ctx context.Context, pic *picture) {
	if s, err := p.queue.Stats(ctx); err == nil {
		pic.waiting = s.Waiting
	}
	now := time.Now().Add(p.ahead)
	planned, err := gather(p.queue.Scheduled(ctx), func(t inspect.ScheduledTask) string {
		return name(t.Payload) + " " + in(t.DueAt.Sub(now))
	})
	if err == nil {
		pic.scheduled = planned
	}
	failed, err := gather(p.queue.Failed(ctx), func(t inspect.FailedTask) string {
		return name(t.Payload) + ": " + t.Error
	})
	if err == nil {
		pic.failed = failed
	}
	running, err := gather(p.queue.Running(ctx), func(t inspect.RunningTask) inspect.RunningTask { return t })
	if err == nil {
		p.crew.seat(running)
	}
	pic.rate, pic.sum = p.tally.rate(), p.tally.sum()
	pic.seats, pic.notes = p.crew.all(), p.journal.all()
	pic.elapsed = time.Since(p.journal.began)
	for len(pic.backlog) < min(int(samples*pic.elapsed/pic.total), samples) {
		pic.backlog = append(pic.backlog, pic.waiting)
		pic.rates = append(pic.rates, pic.rate)
	}
}

// name returns the name of the task with a payload.
func name(payload []byte) string {
	j, err := readJob(payload)
	if err != nil {
		return "something else"
	}
	return j.String()
}

// in formats when something will happen.
func in(d time.Duration) string {
	if d <= 0 {
		return "now"
	}
	return fmt.Sprintf("in %.1f s", d.Seconds())
}

// gather returns what a listing yields, formatted by show.
func gather[T, S any](tasks iter.Seq2[T, error], show func(T) S) (shown []S, err error) {
	for t, err := range tasks {
		if err != nil {
			return nil, err
		}
		shown = append(shown, show(t))
	}
	return shown, nil
}
