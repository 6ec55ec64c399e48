package redisconn

import (
	"context"
	"time"
)

// A Pending holds calls in flight.
type Pending struct {
	line   *Line
	bundle bundle
	wake   <-chan struct{}
	err    error // set instead of a bundle
}

// Start makes the calls as Do does, but doesn't wait for the replies. If the line has no other
// users and is connected, the calls have been sent when Start returns.
func (l *Line) Start(calls ...Call) *Pending {
	p := &Pending{line: l, bundle: bundle{calls: calls, replies: make([]Reply, len(calls))}}
	if p.wake, p.err = l.enter(&p.bundle, true); p.wake == nil && p.err == nil {
		p.wake = l.begin(&p.bundle)
	}
	return p
}

// Done is closed when there is nothing more to wait for.
func (p *Pending) Done() <-chan struct{} {
	if p.err != nil {
		return over
	}
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	switch b := &p.bundle; {
	case b.batch.over.Load():
		return over
	case b.ended == nil:
		b.ended = make(chan struct{})
	}
	return p.bundle.ended
}

// Sent reports whether the calls have been sent. If they still wait for others on the line, f is
// called once they are. f must not block or use the line.
func (p *Pending) Sent(f func()) bool {
	if p.err != nil {
		return false
	}
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if !p.bundle.away {
		p.bundle.tell = f
	}
	return p.bundle.away
}

// Wait returns the replies, as Do does. Call it once.
func (p *Pending) Wait(ctx context.Context) []Reply {
	err := p.err
	if err == nil {
		err = p.line.wait(ctx, &p.bundle, p.wake)
	}
	if err != nil {
		return fail(len(p.bundle.replies), err) // quit has dropped the calls
	}
	return p.bundle.replies
}

// Took returns the time from sending the calls until all were answered, without the time that they
// waited for others on the line. It is valid only after Wait has returned replies.
func (p *Pending) Took() time.Duration {
	p.line.mu.Lock() // the calls may still be in flight
	defer p.line.mu.Unlock()
	return p.bundle.took
}
