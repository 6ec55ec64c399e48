// Package counts counts what happens to the tasks of a peer's queues, for its statistics.
package counts

import (
	"sync"
	"sync/atomic"
)

// Counts are the counters of one or several queues.
type Counts struct {
	Started, Finished, Stopped, Canceled, Retried, Snoozed, Failed, Expired, Dropped atomic.Int64 // tasks, or attempts of them

	Failures   atomic.Int64 // errors and panics of handlers
	Running    atomic.Int64 // handlers that run, but those that count as Stuck
	Stuck      atomic.Int64 // handlers that didn't return in time, until they do
	Lost       atomic.Int64 // attempts that another worker may have taken over
	LostWrites atomic.Int64 // signs that Redis has lost writes
}

func (c *Counts) add(o *Counts) {
	for _, p := range [...][2]*atomic.Int64{
		{&c.Started, &o.Started}, {&c.Finished, &o.Finished}, {&c.Stopped, &o.Stopped}, {&c.Canceled, &o.Canceled},
		{&c.Retried, &o.Retried}, {&c.Snoozed, &o.Snoozed}, {&c.Failed, &o.Failed}, {&c.Expired, &o.Expired}, {&c.Dropped, &o.Dropped}, {&c.Stuck, &o.Stuck},
		{&c.Lost, &o.Lost}, {&c.Failures, &o.Failures}, {&c.Running, &o.Running}, {&c.LostWrites, &o.LostWrites},
	} {
		p[0].Add(p[1].Load())
	}
}

// All are the counters of all queues. They outlive the engine's queues, since StartWork makes a new one each time. The
// zero value is ready, and its methods may be called concurrently.
type All struct {
	mu sync.Mutex         // protects the field below
	of map[string]*Counts // by queue name
}

// Of returns the counters of the queue with a name.
func (a *All) Of(name string) *Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.of[name]
	if c == nil {
		c = &Counts{}
		if a.of == nil {
			a.of = map[string]*Counts{}
		}
		a.of[name] = c
	}
	return c
}

// Sum returns the totals.
func (a *All) Sum() *Counts {
	sum := &Counts{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.of {
		sum.add(c)
	}
	return sum
}
