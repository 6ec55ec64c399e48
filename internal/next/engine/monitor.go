package engine

import (
	"sync"

	"github.com/worqr/worqr/internal/capacity"
)

// A monitor is the lock of a queue and of its sessions. Code that holds it defers what must not
// happen under the lock, such as logging and callbacks, until Unlock. Unlock also passes on freed
// capacity.
type monitor struct {
	capacity *capacity.Capacity

	mu    sync.Mutex // protects the fields below
	after []func()   // in order
	pass  bool       // units were taken or given back
}

func (m *monitor) Lock() { m.mu.Lock() }

// Unlock releases the lock and runs what was deferred.
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

// laterLocked defers a log line or a call until the lock is released.
func (m *monitor) laterLocked(do func()) { m.after = append(m.after, do) }
