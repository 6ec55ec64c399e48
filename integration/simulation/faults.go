package simulation

import (
	"maps"
	"math/rand/v2"
	"time"
)

// A fault happens to a run. It takes some time, and then restores everything
// except what it broke; others may happen in the meantime.
type fault struct {
	name string
	do   func(r *run, d *rand.Rand)
}

func (f fault) String() string { return f.name }

var faults = []fault{
	{"kill", func(r *run, d *rand.Rand) {
		if p := r.victim(d); p != nil {
			r.locked(func() {
				r.world.Kills++
				p.kill(d.IntN(3) == 0)
			})
			<-p.ended
			time.Sleep(time.Duration(d.Float64() * float64(10*time.Second)))
		}
	}},
	{"stop", func(r *run, d *rand.Rand) {
		if p := r.victim(d); p != nil {
			r.locked(func() { r.world.Stops++ })
			r.stop(p)
		}
	}},
	{"pause", func(r *run, d *rand.Rand) {
		p := r.victim(d)
		if p == nil {
			return
		}
		long := time.Duration(d.ExpFloat64() * 1.5 * float64(r.opts.Lease))
		r.locked(func() {
			r.world.Pauses++
			if long > r.opts.Lease {
				r.world.Zombies++
			}
			p.pause()
		})
		time.Sleep(long)
		r.locked(p.proceed)
	}},
	{"cut", func(r *run, d *rand.Rand) {
		if p := r.victim(d); p != nil {
			r.locked(func() { r.world.Partitions++; p.partition(true) })
			time.Sleep(time.Duration(d.ExpFloat64() * float64(r.opts.Lease)))
			r.locked(func() { p.partition(false) })
		}
	}},
	{"reset", func(r *run, d *rand.Rand) {
		r.onLink(d, func(l *link) {
			r.world.Resets++
			l.reset()
		})
	}},
	{"hole", func(r *run, d *rand.Rand) {
		r.onLink(d, func(l *link) {
			r.world.Holes++
			switch d.IntN(3) {
			case 0:
				l.lose(&l.up)
			case 1:
				l.lose(&l.down)
			case 2:
				l.lose(&l.up)
				l.lose(&l.down)
			}
		})
	}},
	{"hold", func(r *run, d *rand.Rand) {
		var held *link
		var on *way
		r.onLink(d, func(l *link) {
			r.world.Held++
			held, on = l, pick(d, &l.up, &l.up, &l.down)
			on.held = true
		})
		if held == nil {
			return
		}
		time.Sleep(time.Duration(d.ExpFloat64() * float64(3*time.Second)))
		r.locked(func() {
			held.of.excuse()
			held.release(on)
		})
	}},
	{"slow", func(r *run, d *rand.Rand) {
		var before time.Duration
		r.locked(func() {
			r.world.Slow++
			before = r.opts.Latency
			r.world.delay = r.opts.Lease / time.Duration(60+d.IntN(200)) // too short to delay a beat
		})
		time.Sleep(time.Duration(d.Float64() * float64(20*time.Second)))
		r.locked(func() { r.world.delay = before })
	}},
	{"stall", func(r *run, d *rand.Rand) {
		if !r.alone.TryLock() {
			return
		}
		defer r.alone.Unlock()
		r.locked(func() {
			r.world.Stalls++
			r.world.stalled = true
		})
		time.Sleep(time.Duration(d.ExpFloat64() * float64(pick(d, time.Second, 5*time.Second, 15*time.Second))))
		r.locked(r.resume)
	}},
	{"restart", func(r *run, d *rand.Rand) { r.crash(d, "") }},
	{"rollback", func(r *run, d *rand.Rand) { r.crash(d, "rollback") }},
	{"wipe", func(r *run, d *rand.Rand) {
		if d.IntN(4) == 0 {
			r.crash(d, "wipe")
		}
	}},
	{"jump", func(r *run, d *rand.Rand) {
		by := time.Duration(d.ExpFloat64() * float64(pick(d, 500*time.Millisecond, 5*time.Second, time.Minute)))
		if d.IntN(2) == 0 {
			by = -by
		}
		r.locked(func() {
			r.world.Jumps++
			r.world.server.jumped += by
			r.world.back += max(-by, 0)
			r.world.record.act(r.world.now(), "clock", r.world.server.jumped.String())
		})
	}},
	{"flush", func(r *run, d *rand.Rand) {
		r.locked(func() {
			r.world.Flushes++
			clear(r.world.server.scripts.programs)
			r.world.record.act(r.world.now(), "flush", "")
		})
	}},
	{"readonly", func(r *run, d *rand.Rand) {
		if !r.alone.TryLock() {
			return
		}
		defer r.alone.Unlock()
		r.locked(func() { r.world.Readonly++ })
		r.set("readonly", &r.world.server.readonly, true)
		time.Sleep(time.Duration(d.ExpFloat64() * float64(3*time.Second)))
		r.set("readonly", &r.world.server.readonly, false)
	}},
	{"full", func(r *run, d *rand.Rand) {
		r.locked(func() { r.world.figures.Full++ })
		r.set("full", &r.world.server.full, true)
		time.Sleep(time.Duration(d.Float64() * float64(20*time.Second)))
		r.set("full", &r.world.server.full, false)
	}},
}

// set changes a setting of the server.
func (r *run) set(what string, flag *bool, to bool) {
	r.locked(func() {
		*flag = to
		value := "0"
		if to {
			value = "1"
		}
		r.world.record.act(r.world.now(), what, value)
	})
}

// resume makes the server process what has arrived meanwhile: connection by
// connection, in any order.
func (r *run) resume() {
	w := r.world
	w.stalled = false
	backlog := w.backlog
	w.backlog = nil
	by := map[*link][]arrival{}
	var links []*link
	for _, a := range backlog {
		if by[a.link] == nil {
			links = append(links, a.link)
		}
		by[a.link] = append(by[a.link], a)
	}
	w.dice.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
	for _, l := range links {
		for _, a := range by[l] {
			w.serve(a)
		}
	}
}

// crash makes the server die and come back: with all its data, with the data of some time before,
// or with none.
func (r *run) crash(d *rand.Rand, loses string) {
	if !r.alone.TryLock() {
		return
	}
	defer r.alone.Unlock()
	w := r.world
	var before snapshot
	if loses == "rollback" {
		r.locked(func() {
			before = w.server.snapshot()
			before.renewed, before.dead = maps.Clone(w.judge.renewed), maps.Clone(w.judge.dead)
			w.record.act(w.now(), "snapshot", "")
		})
		time.Sleep(time.Duration(d.Float64() * float64(1500*time.Millisecond)))
	}
	r.locked(func() {
		w.Restarts++
		w.down = true
		w.backlog = nil
		for _, p := range w.all {
			for l := range p.links {
				l.reset()
			}
		}
		clear(w.server.scripts.programs)
		w.record.act(w.now(), "flush", "")
		switch loses {
		case "rollback":
			w.Rollbacks++
			w.record.act(w.now(), "restore", "")
		case "wipe":
			w.Wipes++
			before = snapshot{}
			w.record.act(w.now(), "wipe", "")
		}
		if loses != "" {
			w.server.restore(before)
			w.judge.restored(before)
		}
	})
	time.Sleep(time.Duration(d.ExpFloat64() * float64(pick(d, 300*time.Millisecond, 3*time.Second))))
	loading := d.IntN(3) == 0
	r.locked(func() { w.down = false })
	if loading {
		r.set("loading", &w.server.loading, true)
		time.Sleep(time.Duration(d.ExpFloat64() * float64(time.Second)))
		r.set("loading", &w.server.loading, false)
	}
}

// victim returns a process to do something to: one that lives, with no other
// fault in progress.
func (r *run) victim(d *rand.Rand) *process {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	var able []*process
	for _, p := range r.world.all {
		if p.served && !p.dead && !p.stopped && !p.frozen && !p.cut {
			able = append(able, p)
		}
	}
	if len(able) == 0 {
		return nil
	}
	return able[d.IntN(len(able))]
}

// onLink does something to a random connection.
func (r *run) onLink(d *rand.Rand, do func(l *link)) {
	p := r.victim(d)
	if p == nil {
		return
	}
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	var some *link
	for l := range p.links {
		if !l.closed && (some == nil || l.number > some.number != (d.IntN(2) == 0)) {
			some = l
		}
	}
	if some != nil {
		p.excuse()
		do(some)
	}
}
