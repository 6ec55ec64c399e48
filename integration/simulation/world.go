package simulation

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/integration/calls"
)

// A world is a server, the network and the processes, in one bubble of synctest.
// Everything outside the peers happens here, one event after the other.
type world struct {
	opts   *Options
	began  time.Time
	server *server
	judge  *judge
	record *record
	figures

	mu      sync.Mutex // protects all of it
	dice    *rand.Rand
	events  []event // in order
	numbers int
	stir    chan struct{} // has an element when an event precedes all others; holds one
	over    chan struct{}
	backlog []arrival // while the server stands still
	stalled bool
	down    bool
	copies  float64 // how likely a repeatable request arrives twice
	deaf    float64 // how likely a link breaks before the reply has arrived
	delay   time.Duration
	back    time.Duration // how far the clock of Redis was set back in total
	all     []*process
	told    func(args []string) // called for each request; may be nil
}

// An arrival is a request that has reached the server.
type arrival struct {
	link *link
	args []string
}

// An event is due at some time.
type event struct {
	at     time.Time
	number int // orders events with the same time
	do     func()
}

func (e event) compare(o event) int { return cmp.Or(e.at.Compare(o.at), e.number-o.number) }

// newWorld is called in a bubble.
func newWorld(o *Options) *world {
	w := &world{
		opts: o, began: time.Now(), dice: o.dice("network"),
		stir: make(chan struct{}, 1), over: make(chan struct{}), delay: o.Latency,
	}
	w.server = newServer()
	w.server.scripts.rewrite = o.Rewrite
	w.server.push = func(to *link, message []byte) { to.reply(message) }
	w.record = &record{}
	w.judge = newJudge(w.server)
	w.judge.w = w
	go w.run()
	return w
}

// now returns the time since the beginning.
func (w *world) now() time.Duration { return time.Since(w.began) }

// latency returns how long the next message travels.
func (w *world) latency() time.Duration {
	if w.delay == 0 {
		return 0
	}
	return w.delay/2 + time.Duration(w.dice.ExpFloat64()*float64(w.delay)/2)
}

// after calls do later. The caller holds w.mu, and so does the call of do.
func (w *world) after(d time.Duration, do func()) {
	w.numbers++
	e := event{time.Now().Add(d), w.numbers, do}
	i, _ := slices.BinarySearchFunc(w.events, e, event.compare)
	w.events = slices.Insert(w.events, i, e)
	if i == 0 {
		signal(w.stir)
	}
}

// run handles events until the world ends.
func (w *world) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.mu.Lock()
		for len(w.events) > 0 && !w.events[0].at.After(time.Now()) {
			first := w.events[0]
			w.events = slices.Delete(w.events, 0, 1)
			first.do()
		}
		next := time.Hour
		if len(w.events) > 0 {
			next = time.Until(w.events[0].at)
		}
		w.mu.Unlock()
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-w.stir:
		case <-w.over:
			return
		}
	}
}

// sent sends a request to the server.
func (w *world) sent(l *link, args []string) {
	if l.of.dead {
		return
	}
	l.send(&l.up, func() { w.arrived(arrival{l, args}) })
}

// arrived makes the server process a request, now or once it continues.
func (w *world) arrived(a arrival) {
	switch {
	case !a.link.known:
	case w.stalled:
		w.backlog = append(w.backlog, a)
	default:
		w.serve(a)
	}
}

// serve makes the server run a request, and answer.
func (w *world) serve(a arrival) {
	l := a.link
	if !l.known {
		return
	}
	if l.closed {
		w.Late++
	}
	switch a.args[0] {
	case "SUBSCRIBE", "UNSUBSCRIBE":
		l.reply(w.server.subscribe(l, a.args))
		return
	case "PING":
		if len(l.hears) > 0 {
			l.reply(appendReply(nil, []any{"pong", ""}))
		} else {
			l.reply(appendReply(nil, status("PONG")))
		}
		return
	}
	reply, verb := w.carryOut(a.args, l.of, false)
	_, refused := reply.(refusal)
	if w.copies > 0 && repeatable(verb, a.args) && !refused && w.dice.Float64() < w.copies {
		w.Copies++
		// Sometimes so late that everything it refers to has changed.
		w.after(time.Duration(w.dice.ExpFloat64()*w.dice.Float64()*float64(10*time.Second)), func() {
			if !w.down && !w.stalled {
				w.carryOut(a.args, l.of, true)
			}
		})
	}
	if w.deaf > 0 && w.dice.Float64() < w.deaf {
		w.Deaf++
		l.of.excuse()
		l.reset()
		return
	}
	l.send(&l.down, func() {
		l.receive(appendReply(nil, reply))
		if verb == "join" && !refused {
			w.judge.welcomed(a.args)
		}
	})
}

// repeatable reports whether a second copy of a call, however late, must have no effect.
func repeatable(verb string, args []string) bool {
	switch verb {
	case "finish", "start", "heartbeat", "join", "leave", "recur":
		return true
	case "enqueue":
		call, _ := calls.Parse(args)
		return call.Int("window") > 0
	}
	return false
}

// carryOut runs one request, and makes the judge check it.
func (w *world) carryOut(args []string, from *process, again bool) (reply any, verb string) {
	w.Requests++
	w.record.request(w.now(), from.name, again, args)
	if w.told != nil {
		w.told(args)
	}
	return w.judge.request(args, from, again)
}

// hangUp closes a connection at the server.
func (w *world) hangUp(l *link) {
	if l.known {
		l.known = false
		delete(l.of.links, l)
		w.server.disconnect(l)
	}
}

// connect makes a link for a process. The caller holds w.mu.
func (w *world) connect(p *process) *link {
	w.numbers++
	l := &link{w: w, of: p, number: w.numbers, stir: make(chan struct{}, 1), known: true, hears: map[string]bool{}}
	p.links[l] = true
	return l
}

// end ends the world, when no process is left.
func (w *world) end() {
	close(w.over)
	w.server.close()
}
