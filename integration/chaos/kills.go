package main

import (
	"time"

	"github.com/worqr/worqr/integration/load"
)

// kills kills real processes: one by one, a few at the same time, and sometimes all of them. Others replace
// them.
func kills(o options) *report {
	r := play(o, 0, setup{durability: everysec, spec: load.Config{Faults: true}}, func(a *arena) {
		// Each peer lives for several leases, so that some live peer may always evict others.
		apart := 7 * a.lease / 2 / time.Duration(len(a.fleet.members))
		for n := 0; n < a.kills; {
			pause(a.between(0, 2*apart))
			many, note := 1, ""
			switch d := a.dice.IntN(400); {
			case d == 0:
				many, note = len(a.fleet.members), noteAll
			case d < 20:
				many = 3
			}
			var slots []int
			for range many {
				slot := a.awake()
				if slot < 0 || n+len(slots) == a.kills {
					break
				}
				a.fleet.members[slot].asleep = true // so that it isn't picked twice
				slots = append(slots, slot)
			}
			for _, slot := range slots {
				a.fleet.kill(slot, note)
			}
			for _, slot := range slots {
				a.fleet.spawn(slot)
			}
			n += len(slots)
			pause(time.Duration(len(slots)-1) * 2 * apart)
		}
	})
	r.bound("recovery", r.Recoveries, 99, o.recovery())
	return r
}

// noteAll marks kills of all peers at once. Their tasks wait until the next peers have served for a
// lease.
const noteAll = "all"

// recovery is how long tasks of a killed peer may wait for their next start: one and a third of a
// lease, and the time of a start. Unless the run is strict, a busy machine gets more.
func (o *options) recovery() time.Duration {
	most := o.lease*4/3 + 300*time.Millisecond
	if !o.strict {
		most += o.lease + 5*time.Second
	}
	return most
}
