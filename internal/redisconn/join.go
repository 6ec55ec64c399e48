package redisconn

import (
	"fmt"
	"slices"
)

// Limits for calls that are combined into one.
const (
	joinArgs = 2500
	joinSize = 256 << 10
	lookBack = 16 // different calls that a call may join
)

// A Head is the common beginning of script calls that may be combined. Calls with the same head
// become one call with the arguments of all callers, one after the other. All callers get the same
// reply, which they must not change. So a combined script must treat the arguments as if the
// callers had sent theirs one after the other, and accept all or none.
type Head struct {
	name string // equal for equal heads
	call Call
}

// Head returns the head with the keys and arguments of a call.
func (c Call) Head() *Head { return &Head{fmt.Sprintf("%q", c.args), c} }

// Call returns the call with additional arguments.
func (h *Head) Call(tail []any) Call {
	c := h.call.With(tail)
	c.head = h
	return c
}

// combine makes bunches lead others where possible. Several calls of one caller stay as they are, to keep their order.
func combine(some []*bunch) {
	var leads []*bunch
	for _, b := range some {
		if len(b.calls) != 1 || b.calls[0].head == nil || !b.turn {
			continue
		}
		from := max(0, len(leads)-lookBack)
		if i := slices.IndexFunc(leads[from:], func(lead *bunch) bool { return lead.takes(b) }); i >= 0 {
			leads[from+i].add(b)
		} else {
			leads = append(leads, b)
		}
	}
}

func (b *bunch) takes(o *bunch) bool {
	c, with := &b.calls[0], &o.calls[0]
	return b.whole == o.whole && len(c.tail)+len(with.tail) <= joinArgs && b.size+o.size <= joinSize &&
		(c.head == with.head || c.head.name == with.head.name)
}

// add makes a bunch's call include another's arguments.
func (b *bunch) add(o *bunch) {
	if b.riders++; b.riders == 1 {
		c := b.calls[0]
		c.tail = slices.Clip(c.tail)
		b.calls = []Call{c} // the caller's doesn't change
	}
	b.calls[0].tail = append(b.calls[0].tail, o.calls[0].tail...)
	b.size, o.size, o.lead = b.size+o.size, 0, b
}
