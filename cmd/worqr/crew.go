package main

import (
	"slices"
	"sync"

	"github.com/worqr/worqr/inspect"
)

// A crew is the peers of the demo, as shown. Which tasks a peer holds comes from
// Redis.
type crew struct {
	mu    sync.Mutex // protects the fields below
	seats []seat     // by the number of the peer, from 1
	ids   map[string]int
}

// A seat is one peer.
type seat struct {
	killed bool
	tasks  [slots]string // each task keeps its place, so that it's easy to follow; "" is free
}

func newCrew(size int) *crew {
	return &crew{seats: make([]seat, size), ids: map[string]int{}}
}

// is stores which peer has a worker's id. A peer that was evicted and has come
// back has another id.
func (c *crew) is(worker string, number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[worker] = number
}

// number returns the number of the peer with a worker's id, or 0.
func (c *crew) number(worker string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids[worker]
}

func (c *crew) killed(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seats[number-1].killed = true
}

// seat updates what runs now.
func (c *crew) seat(running []inspect.RunningTask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	holds := make([][]string, len(c.seats))
	for _, t := range running {
		if j, err := readJob(t.Payload); err == nil && c.ids[t.WorkerID] > 0 {
			i := c.ids[t.WorkerID] - 1
			holds[i] = append(holds[i], j.String())
		}
	}
	for i := range c.seats {
		s := &c.seats[i]
		for k, task := range s.tasks {
			if !slices.Contains(holds[i], task) {
				s.tasks[k] = ""
			}
		}
		for _, task := range holds[i] {
			if free := slices.Index(s.tasks[:], ""); free >= 0 && !slices.Contains(s.tasks[:], task) {
				s.tasks[free] = task
			}
		}
	}
}

func (c *crew) all() []seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seats)
}
