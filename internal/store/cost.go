package store

import "time"

// RoundBudget is how much of Redis's time one round is to take. Redis does nothing else
// meanwhile, so it is what every other caller may have to wait.
const RoundBudget = 2 * time.Millisecond

// FarBudget is how much it may take where Redis is far away, since fewer rounds are made.
const FarBudget = 5 * time.Millisecond

// costs are what the end of one process takes of Redis's time, in μs as measured: of a
// task of the list, of one of the schedule, and for how many bytes of the payload it
// takes one more. What starts cost is in step.lua, which sees the payloads first.
var costs = map[Ending]struct{ plain, entry, bytes int }{
	Finish: {4, 12, 20_000},
	Drop:   {4, 12, 20_000},
	Stop:   {9, 24, 600},
	Retry:  {12, 29, 400},
	Fail:   {36, 51, 400},
}

// Cost is what the outcome takes of Redis's time, about, in μs. Heard tells that there are
// observers: for them, payloads and results are encoded. Watched tells that there are locks,
// crashes or cancels: for them, the payload of an end is read and hashed, unless it is large,
// so that its digest is said.
func (o *Outcome) Cost(heard, watched bool) int {
	cost := 2 + o.Size/20_000
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

// What it takes to see to locks, crashes and cancels: for each end, and how many bytes of
// payload take one more.
const (
	looking     = 6
	bytesHashed = 400
)

// What it takes to tell observers: for each message, and how many bytes take one more.
const (
	encoding     = 4
	bytesEncoded = 40
)
