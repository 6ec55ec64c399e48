package engine

import "sync/atomic"

// Counts count what was done on a queue, or on several.
type Counts struct {
	Started, Finished, Stopped, Canceled, Retried, Snoozed, Failed, Expired, Dropped, Stuck, Lost, Failures, Running, LostWrites atomic.Int64
}

// add adds what was done elsewhere.
func (c *Counts) add(o *Counts) {
	for _, p := range [...][2]*atomic.Int64{
		{&c.Started, &o.Started}, {&c.Finished, &o.Finished}, {&c.Stopped, &o.Stopped}, {&c.Canceled, &o.Canceled},
		{&c.Retried, &o.Retried}, {&c.Snoozed, &o.Snoozed}, {&c.Failed, &o.Failed}, {&c.Expired, &o.Expired}, {&c.Dropped, &o.Dropped}, {&c.Stuck, &o.Stuck},
		{&c.Lost, &o.Lost}, {&c.Failures, &o.Failures}, {&c.Running, &o.Running}, {&c.LostWrites, &o.LostWrites},
	} {
		p[0].Add(p[1].Load())
	}
}

// counted returns the counts of the queue with a name. They outlive the queue: one that is served
// by hand is made again with each StartWork.
func (e *Engine) counted(name string) *Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.counts[name]
	if c == nil {
		c = &Counts{}
		e.counts[name] = c
	}
	return c
}

// Counts returns what was done on all queues since the engine was made.
func (e *Engine) Counts() *Counts {
	sum := &Counts{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.counts {
		sum.add(c)
	}
	return sum
}

// CountsOf returns what was done on the queue with a name.
func (e *Engine) CountsOf(name string) *Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.counts[name]; c != nil {
		return c
	}
	return &Counts{}
}
