package store

import "time"

// RoundBudget is how much of Redis's time one round may take. Redis does nothing else
// meanwhile, so every other caller may have to wait that long.
const RoundBudget = 2 * time.Millisecond

// FarBudget is how much it may take if Redis is far away, since fewer rounds are made.
const FarBudget = 5 * time.Millisecond

// costs are how long Redis takes to end one process, in μs as measured: for a
// task of the list, for one of the schedule, and the bytes of payload that
// take one more. The costs of starts are in step.lua, which sees the payloads first.
var costs = map[Ending]struct{ plain, entry, bytes int }{
	Finish: {4, 12, 20_000},
	Drop:   {4, 12, 20_000},
	Stop:   {9, 24, 600},
	Retry:  {12, 29, 400},
	Snooze: {12, 29, 400},
	Fail:   {36, 51, 400},
}

// Cost estimates how much of Redis's time the outcome takes, in μs. Heard says that there are
// observers: for them, payloads and results are encoded. Watched says that there are locks,
// crashes or cancels: for them, the payload of an end is read and hashed. For a large one, the
// caller sends the digest instead.
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
		cost += looking
		if o.Size <= Large {
			cost += o.Size / bytesHashed
		}
	}
	if o.Verb == Finish && heard {
		cost += encoding
		for _, size := range []int{o.Size, len(o.Result)} {
			if size <= Large {
				cost += size / bytesEncoded
			}
		}
	}
	return cost + len(o.Result)/1000
}

// bytesOfCard are those of a card that take one µs more: Redis reads and copies it.
const bytesOfCard = 100

// tied is what an added task costs more than one of the list: its card and its name go, too.
const tied = 3

// What locks, crashes and cancels cost: for each end, and the bytes of
// payload that take one more.
const (
	looking     = 6
	bytesHashed = 400
)

// What events cost: for each one, and the bytes that take one more.
const (
	encoding     = 4
	bytesEncoded = 40
)
