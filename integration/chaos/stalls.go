package main

import (
	"time"

	"github.com/worqr/worqr/integration/load"
)

// stalls has Redis stand still, for 1 to 30 s each time, while every peer lives:
// nobody is given up, and nothing starts once more. Servers stand still side by
// side, each with a fleet of its own.
func stalls(o options) *report {
	arenas := min(o.stalls, 20)
	o.peers = min(o.peers, 3)
	return several(arenas, func(number int) *report {
		s := setup{durability: everysec, alive: true, tail: time.Second, spec: load.Config{Every: time.Second / 2, Batch: 3, Nap: 3 * time.Second}}
		return play(o, number, s, func(a *arena) {
			for range (a.stalls + arenas - 1 - number) / arenas { // all of them, shared out
				pause(a.between(a.lease/2, 2*a.lease)) // also before anybody may judge again
				a.stall(a.between(time.Second, 30*time.Second))
			}
		})
	})
}

// stall has the server stand still. That is not held against the script that was
// running.
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
