package engine

import (
	"sync"

	"github.com/worqr/worqr/internal/capacity"
)

// A monitor is the lock of a queue and of its sessions. What a section decides, and must not
// do itself, follows when the lock is released. So nothing is logged and nobody is called
// under it, and capacity that came back is passed on without anybody's having to think of it.
type monitor struct {
	capacity *capacity.Capacity

	mu    sync.Mutex // protects the fields below
	after []func()   // in their order
	pass  bool       // units were taken, or came back
}

func (m *monitor) Lock() { m.mu.Lock() }

// Unlock ends a section and does what it has left to be done.
func (m *monitor) Unlock() {
	after, pass := m.after, m.pass
	m.after, m.pass = nil, false
	m.mu.Unlock()
	for _, do := range after {
		do()
	}
	if pass {
		m.capacity.Pass()
	}
}

// laterLocked has something done once the lock is released: a line logged, somebody told.
func (m *monitor) laterLocked(do func()) { m.after = append(m.after, do) }
