package main

import (
	"time"

	"github.com/worqr/worqr/integration/load"
)

// pubsub loses all messages, because subscribed connections are half open from the start, or
// because SUBSCRIBE is refused. Heartbeats then start tasks and apply cancels.
func pubsub(o options) *report {
	o.peers = min(o.peers, 4)
	spec := load.Config{Every: time.Second, Batch: 2, Nap: 4 * time.Second, Concurrency: 50, Cancels: 3}
	r := several(2, func(number int) *report {
		s := setup{durability: everysec, alive: true, spec: spec, place: throughLinks(new(*network), true)}
		if number > 0 {
			s.place = func(a *arena) func(int) (string, []string) {
				a.server.do([]any{"ACL", "SETUSER", "default", "-subscribe", "-psubscribe"})
				return func(int) (string, []string) { return a.server.URL(), nil }
			}
		}
		return play(o, number, s, func(a *arena) { pause(a.span) })
	})
	beat := o.lease / 3
	slack := time.Duration(0)
	if !o.strict {
		slack = 5 * time.Second // for a busy machine
	}
	r.bound("wait without pub/sub", r.Waits, 100, beat*5/4+slack)
	r.bound("cancel without pub/sub", r.Stops, 100, beat*3/2+slack)
	if len(r.Stops) == 0 {
		r.violate("no cancel has found anything that ran")
	}
	return r
}
