package engine

import "sync/atomic"

// Counts are the counters of one or several queues.
type Counts struct {
	Started, Finished, Stopped, Canceled, Retried, Snoozed, Failed, Expired, Dropped, Stuck, Lost, Failures, Running, LostWrites atomic.Int64
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

// counted returns the counters of the queue with a name. They outlive the Queue, since StartWork
// makes a new one each time.
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

// Counts returns the totals of all queues since the engine was created.
func (e *Engine) Counts() *Counts {
	sum := &Counts{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.counts {
		sum.add(c)
	}
	return sum
}

func (e *Engine) CountsOf(name string) *Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.counts[name]; c != nil {
		return c
	}
	return &Counts{}
}
