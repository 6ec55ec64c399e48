package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

// hear takes in what a peer says.
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
		if p.tally.started(j.id, c.number) {
			p.comeback.again(p.journal, fmt.Sprintf("%v starts again, on %s", j, c.name()))
		}
	case reportCanceled:
		p.journal.add(special, "", "its handler on %s ends: context.Cause is worqr.ErrCanceled", c.name())
	}
}

// A comeback tells of returned tasks in the order in which it happened: they
// start within a millisecond, on one peer, and another that has returned them
// may take longer to say so.
type comeback struct {
	mu    sync.Mutex // protects the fields below
	told  bool
	early []string
}

func (b *comeback) returned(j *journal, peer string, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.add(good, "back", "%s notices, and returns %s to the front of the queue", peer, tasks(count))
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

// listen takes in what Redis says.
func (p *play) listen(ctx context.Context, listening chan<- struct{}) {
	synced := false
	for e, err := range p.peer.Events(ctx, queueName) {
		switch {
		case err != nil:
			continue // a sync follows
		case e.Kind == worqr.EventSync && !synced:
			synced = true
			close(listening)
		case e.Kind == worqr.EventSync:
			p.tally.gap()
		case e.Kind == worqr.EventDone:
			if j, err := readJob(e.Payload); err == nil {
				p.tally.finished(j.id)
			}
		case e.Kind == worqr.EventCancel && bytes.Equal(e.Payload, fence):
			close(p.fenced)
			return
		}
	}
}

// paint shows how things are, ten times a second, until ctx ends.
func (p *play) paint(ctx context.Context) {
	frames := time.NewTicker(100 * time.Millisecond)
	defer frames.Stop()
	pic := &picture{total: p.total, where: p.broker.where}
	for {
		p.look(ctx, pic)
		p.stage.paint(pic)
		select {
		case <-ctx.Done():
			return
		case <-frames.C:
		}
	}
}

// look brings the picture up to date. Where Redis does not answer, it stays as
// it was; what acts will notice.
func (p *play) look(ctx context.Context, pic *picture) {
	if n, err := p.queue.Len(ctx); err == nil {
		pic.waiting = n
	}
	var running []worqr.RunningTask
	var err error
	for t, e := range p.queue.Running(ctx) {
		if err = e; err == nil {
			running = append(running, t)
		}
	}
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
