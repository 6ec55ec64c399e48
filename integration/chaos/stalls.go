package main

import (
	"time"

	"github.com/worqr/worqr/integration/load"
)

// stalls stops Redis for 1 to 30 s at a time while all peers live: no peer is evicted, and nothing
// starts twice. Several servers are stopped in parallel, each with its own fleet.
func stalls(o options) *report {
	arenas := min(o.stalls, 20)
	o.peers = min(o.peers, 3)
	return several(arenas, func(number int) *report {
		s := setup{durability: everysec, alive: true, tail: time.Second, spec: load.Config{Every: time.Second / 2, Batch: 3, Nap: 3 * time.Second}}
		return play(o, number, s, func(a *arena) {
			for range (a.stalls + arenas - 1 - number) / arenas { // divided among the arenas
				pause(a.between(a.lease/2, 2*a.lease)) // sometimes before peers may evict each other again
				a.stall(a.between(time.Second, 30*time.Second))
			}
		})
	})
}

// stall stops the server for d. It resets SLOWLOG, since a script that was running then isn't slow.
func (a *arena) stall(d time.Duration) {
	a.server.note()
	a.journal.say(event{Op: opServer, Note: noteStop})
	a.server.Pause(a.t)
	pause(d)
	a.server.Resume(a.t)
	a.journal.say(event{Op: opServer, Note: noteCont})
	a.report.Stalls++
	a.server.do([]any{"SLOWLOG", "RESET"})
}

const noteStop, noteCont = "stop", "cont"
