package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
)

// A process is a peer, with a producer, that behaves as if it were a separate process.
//
// It can be killed and paused. A killed process can't reach anything anymore: its connections are gone, it
// gets no others, and its handlers return without effect. The contexts of its goroutines end, and then the
// goroutines, since a bubble waits for them. A paused one reads nothing, starts nothing and ends nothing until
// it continues; what its timers make it send is sent then.
type process struct {
	w       *world
	name    string
	peer    *worqr.Peer
	guest   *worqr.Peer     // joins and leaves queues repeatedly under one id (visit); nil if the run has none
	ctx     context.Context // ends when the process is killed, or asked to stop
	cancel  context.CancelFunc
	ended   chan struct{}  // closed when nothing of it is left
	waiting sync.WaitGroup // goroutines that wait until tasks have ended
	result  error          // of Run

	// Guarded by the mu of the world:
	links   map[*link]bool
	dead    bool
	frozen  bool
	thawed  chan struct{} // closed while it is not paused
	outbox  []func()      // to send after the pause
	cut     bool          // from the network
	until   time.Time     // its eviction is excused until then
	served  bool          // Run has begun
	stopped bool          // it is leaving, or has left
}

var errDead = errors.New("the process is dead")

// newProcess returns a process without a peer. It isn't paused.
func newProcess(w *world, name string) *process {
	p := &process{w: w, name: name, links: map[*link]bool{}, thawed: make(chan struct{}), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	close(p.thawed)
	return p
}

// spawn starts a process that serves the queues.
func (r *run) spawn() *process {
	w := r.world
	w.mu.Lock()
	r.spawned++
	number := r.spawned
	p := newProcess(w, fmt.Sprintf("p%d", number))
	p.served = true
	w.all = append(w.all, p)
	w.mu.Unlock()
	o := r.opts
	p.peer = worqr.New(&redis.Pool{DialContext: p.dial}, &worqr.Options{
		Name: p.name, Lease: o.Lease, Drain: o.Drain, Capacity: o.Capacity, Logger: slog.New(&diary{p: p}),
	})
	for _, q := range o.Queues {
		p.peer.Queue(q).Handle(r.handler(p), r.handling(p))
	}
	if o.Recurring {
		r.recur(p, number/shipped)
	}
	if o.Guests {
		p.guest = worqr.New(&redis.Pool{DialContext: p.dial}, &worqr.Options{Name: p.name + " guest", Lease: o.Lease, Logger: slog.New(&diary{p: p})})
	}
	go func() {
		defer close(p.ended)
		producing := make(chan struct{})
		go func() {
			defer close(producing)
			r.produce(p)
		}()
		p.result = p.peer.Run(p.ctx)
		p.cancel()
		<-producing
		p.waiting.Wait()
		if p.guest != nil {
			_ = p.guest.Close() // its ends are judged where they happen
		}
		_ = p.peer.Close() // Run has returned the error
		r.locked(func() { r.stored += int(p.peer.Stats().Finished) })
	}()
	return p
}

// tool returns a process that serves nothing, for use by the test itself.
func (r *run) tool(name string) *process {
	p := newProcess(r.world, name)
	p.peer = worqr.New(&redis.Pool{DialContext: p.dial}, &worqr.Options{Name: p.name, Lease: r.opts.Lease, Logger: slog.New(&diary{p: p})})
	return p
}

// dial connects to the server.
func (p *process) dial(ctx context.Context) (redis.Conn, error) {
	w := p.w
	p.breathe()
	w.mu.Lock()
	delay := 2 * w.latency()
	w.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	p.breathe()
	w.mu.Lock()
	dead, cut, down := p.dead, p.cut, w.down
	switch {
	case dead, cut, down:
	default:
		defer w.mu.Unlock()
		return redis.NewConn(w.connect(p), 0, 0), nil
	}
	w.mu.Unlock()
	switch {
	case dead:
		return nil, errDead
	case cut:
		select {
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
		return nil, context.DeadlineExceeded
	}
	return nil, errors.New("connection refused")
}

// is reports whether a worker of the process has this id now.
func (p *process) is(worker string) bool {
	return p.peer.WorkerID() == worker || p.guest != nil && p.guest.WorkerID() == worker
}

// breathe waits while the process is paused.
func (p *process) breathe() {
	p.w.mu.Lock()
	thawed := p.thawed
	p.w.mu.Unlock()
	<-thawed
}

// rest sleeps; it returns false if ctx has ended first. It takes longer while the
// process is paused.
func (p *process) rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	p.breathe()
	return ctx.Err() == nil
}

// unlessPaused calls do once the process isn't paused. From here on, callers hold
// the mu of the world.
func (p *process) unlessPaused(do func()) {
	if p.frozen {
		p.outbox = append(p.outbox, do)
		return
	}
	do()
}

func (p *process) pause() {
	p.excuse()
	p.frozen, p.thawed = true, make(chan struct{})
}

func (p *process) proceed() {
	if !p.frozen {
		return
	}
	p.excuse()
	p.frozen = false
	close(p.thawed)
	outbox := p.outbox
	p.outbox = nil
	for _, do := range outbox {
		do()
	}
}

// excuse records that other workers may evict the process because of a fault.
func (p *process) excuse() { p.until = time.Now().Add(3 * p.w.opts.Lease) }

func (p *process) excused() bool {
	return p.dead || p.stopped || p.frozen || p.cut || time.Now().Before(p.until)
}

// kill ends the process at once. If its machine dies too, its connections aren't
// closed at the server.
func (p *process) kill(machine bool) {
	p.dead = true
	for l := range p.links {
		if machine || p.frozen {
			l.lose(&l.up)
			p.w.after(keepAlive, func() { p.w.hangUp(l) })
		} else {
			l.send(&l.up, func() { p.w.hangUp(l) })
		}
		l.lose(&l.down)
		l.fail(errDead)
	}
	p.outbox = nil
	if p.frozen {
		p.frozen = false
		close(p.thawed)
	}
	p.cancel()
}

// partition cuts the process off from the network, or ends that. What was sent
// meanwhile arrives then, as with TCP.
func (p *process) partition(cut bool) {
	p.excuse()
	p.cut = cut
	for l := range p.links {
		if cut {
			l.up.held, l.down.held = true, true
		} else {
			l.release(&l.up)
			l.release(&l.down)
		}
	}
}

// A diary is the log of a process: warnings and errors are recorded.
type diary struct{ p *process }

func (d *diary) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (d *diary) WithAttrs([]slog.Attr) slog.Handler               { return d }
func (d *diary) WithGroup(string) slog.Handler                    { return d }
func (d *diary) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	})
	d.p.w.record.note(d.p.w.now(), d.p.name, line)
	return nil
}
