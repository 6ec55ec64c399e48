package store

import "time"

// RoundBudget is how much of Redis's time one round may take. Redis does nothing else in that time,
// and every other caller may have to wait that long.
const RoundBudget = 2 * time.Millisecond

// FarBudget replaces RoundBudget if Redis is far away, since fewer rounds are made then.
const FarBudget = 5 * time.Millisecond

// costs holds how long Redis takes to settle one process, in µs as measured: for a task of the
// list, for one of the schedule, and how many bytes of payload add one µs. The costs of starting
// tasks are in COST of step.lua, which sees the payloads first.
var costs = map[Ending]struct{ plain, entry, bytes int }{
	Finish: {4, 12, 1000},
	Drop:   {4, 12, 1000},
	Stop:   {9, 24, 600},
	Retry:  {12, 29, 400},
	Snooze: {12, 29, 400},
	Fail:   {36, 51, 400},
}

// Cost estimates how much of Redis's time the outcome takes, in µs. heard means that there are
// observers: for them, payloads and results are encoded. watched means that there are locks,
// crashes or cancels: for them, the payload of a finished task is read and hashed.
func (o *Outcome) Cost(heard, watched bool) int {
	cost := 2 + o.Size/20_000 + o.Card/bytesOfCard
	if o.Added {
		cost += tied
	}
	if !o.simple() {
		c := costs[o.Verb]
		cost = c.entry
		if o.Plain {
			cost = c.plain
		}
		cost += o.Size / c.bytes
	}
	if watched && (o.Verb == Finish || o.Verb == Drop) {
		cost += looking + o.Size/bytesHashed
	}
	if o.Verb == Finish && heard {
		cost += encoding
		for _, size := range []int{o.Size, len(o.Result)} {
			if size <= Large {
				cost += size / bytesEncoded
			} else {
				cost += size / bytesHashed
			}
		}
	}
	return cost + len(o.Result)/1000
}

// bytesOfCard is how many bytes of a card add one µs: Redis reads and copies it. It's the same in
// COST of step.lua.
const bytesOfCard = 100

// tied is how much more an added task costs than one of the list: its card and name are removed, too.
const tied = 3

// The costs of locks, crashes and cancels, in µs: for each finished task, and how many bytes of
// payload add one.
const (
	looking     = 6
	bytesHashed = 400
)

// The costs of events, in µs: for each one, and how many bytes add one.
const (
	encoding     = 4
	bytesEncoded = 40
)
