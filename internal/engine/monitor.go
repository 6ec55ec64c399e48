package engine

import (
	"sync"

	"github.com/worqr/worqr/internal/capacity"
)

// A monitor is the lock of a queue and of its sessions. What a section decides, and must not
// do itself, is done when the lock is released. So nothing is logged and nobody is called
// under it, and freed capacity is passed on automatically.
type monitor struct {
	capacity *capacity.Capacity

	mu    sync.Mutex // protects the fields below
	after []func()   // in their order
	pass  bool       // units were taken, or came back
}

func (m *monitor) Lock() { m.mu.Lock() }

// Unlock ends a section and does what it has deferred.
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

// laterLocked defers something until the lock is released: a log line, a call.
func (m *monitor) laterLocked(do func()) { m.after = append(m.after, do) }
