package redisconn

import (
	"context"
	"time"
)

// A Pending is calls that are being made.
type Pending struct {
	line   *Line
	bundle bundle
	done   <-chan struct{}
	err    error // instead
}

// Start has the calls made as Do does, and does not wait for the replies. When
// nobody else uses the line and it is connected, they have been sent when it
// returns.
func (l *Line) Start(calls ...Call) *Pending {
	p := &Pending{line: l, bundle: bundle{calls: calls, replies: make([]Reply, len(calls))}}
	if l.own() {
		p.done = l.begin(&p.bundle)
	} else {
		p.done, p.err = l.join(&p.bundle)
	}
	return p
}

// Done is closed when there is nothing more to wait for.
func (p *Pending) Done() <-chan struct{} {
	if p.err != nil {
		return over
	}
	return p.done
}

// Sent reports whether the calls have been sent. If they still wait for others on the line, f is called
// once they are. It must not block, or use the line.
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

// Wait returns the replies, as Do does. It is called once.
func (p *Pending) Wait(ctx context.Context) []Reply {
	err := p.err
	if err == nil {
		err = p.line.wait(ctx, &p.bundle, p.done)
	}
	if err != nil {
		return fail(len(p.bundle.replies), err) // quit has dropped the calls
	}
	return p.bundle.replies
}

// Took is the time from when the calls were sent until all had been answered, without what
// they waited before for others on the line. It means something only after Wait has returned
// replies.
func (p *Pending) Took() time.Duration { return p.bundle.took }
