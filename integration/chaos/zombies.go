package main

import (
	"time"

	"github.com/worqr/worqr/integration/load"
)

// zombies stops peers for so long that they are evicted while they hold tasks, which others then
// run, and continues them.
func zombies(o options) *report {
	tail := 4*o.lease + 3*time.Second // for the last one to work again
	r := play(o, 0, setup{durability: everysec, tail: tail, spec: load.Config{Nap: o.lease, Every: 100 * time.Millisecond, Batch: 3}}, func(a *arena) {
		until := map[int]time.Time{}
		wake := func() {
			for slot, t := range until {
				if time.Now().After(t) {
					a.fleet.resume(slot)
				}
				if time.Since(t) > a.lease { // before it rejoins, it couldn't be evicted again
					delete(until, slot)
				}
			}
		}
		// While the machine is so busy that replies are slow, peers may not evict, and some naps
		// end before they can. So there are more naps than requested.
		for n := 0; n < a.zombies+a.zombies/2; {
			pause(a.between(0, a.lease/2))
			wake()
			slot := a.awake()
			if _, resting := until[slot]; slot >= 0 && !resting && len(until) < len(a.fleet.members)/2 {
				a.fleet.stop(slot)
				until[slot] = time.Now().Add(a.between(3*a.lease, 5*a.lease))
				n++
			}
		}
		for len(until) > 0 {
			pause(a.lease / 10) // poll
			wake()
		}
	})
	if r.Zombies < o.zombies {
		r.violate("%d zombies of %d", r.Zombies, o.zombies)
	}
	if r.Stale == 0 && o.zombies > 10 {
		r.violate("no zombie tried to finish what it held, so nothing was refused")
	}
	return r
}
