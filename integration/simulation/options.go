package simulation

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Options distinguish one run from another. They follow from the seed.
type Options struct {
	Seed uint64

	Safety  time.Duration // how long the phase with faults is
	Queues  []string
	Fleet   int           // number of live processes
	Lease   time.Duration // of each
	Drain   time.Duration
	Latency time.Duration // of a message, on average
	Mute    bool          // publish reaches no subscriber
	Pace    time.Duration // between the actions of a producer, on average
	Longest time.Duration // that handlers take

	Concurrency int
	Capacity    int
	Prefetch    int
	MaxCrashes  int
	Exclusive   bool
	OnFailed    bool
	Guests      bool // workers that come and go under one id
	Timeout     time.Duration
	Recurring   bool // there are schedules

	Calm   time.Duration // between faults, on average
	Faults []fault
	Copies float64 // how likely a request arrives again, later
	Deaf   float64 // how likely a link breaks before a reply has arrived

	// Rewrite, if set, changes scripts on their way to the server.
	Rewrite func(script string) string
}

// dice returns random numbers for one purpose, so that one part of a run doesn't
// affect another's.
func (o *Options) dice(purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose)) // never fails
	return rand.New(rand.NewPCG(o.Seed, h.Sum64()))
}

// New derives the options of a run from its seed. Each kind of fault occurs in
// some runs and not in others, since together they hide one another's effects.
func New(seed uint64) *Options {
	o := &Options{Seed: seed, Safety: 10 * time.Minute}
	d := o.dice("options")
	for i := range 1 + d.IntN(3) {
		o.Queues = append(o.Queues, fmt.Sprintf("q%d", i))
	}
	o.Fleet = 2 + d.IntN(5)
	o.Lease = pick(d, 3*time.Second, 3*time.Second, time.Second, 6*time.Second)
	o.Drain = pick(d, time.Second, 5*time.Second, 25*time.Second, -1)
	o.Latency = pick(d, 0, 200*time.Microsecond, time.Millisecond, o.Lease/600, o.Lease/150)
	o.Mute = d.IntN(4) == 0
	o.Pace = pick(d, 200*time.Millisecond, 400*time.Millisecond, time.Second)
	o.Longest = pick(d, 50*time.Millisecond, time.Second, 5*time.Second)
	o.Concurrency = pick(d, 1, 2, 4, 16)
	o.Capacity = pick(d, 0, 0, 0, 3)
	o.Prefetch = pick(d, 0, 0, -1)
	o.MaxCrashes = pick(d, -1, -1, 0, 2, 1)
	o.Exclusive = d.IntN(3) == 0
	o.OnFailed = d.IntN(3) == 0
	o.Timeout = pick(d, 0, 0, 8*time.Second)
	o.Calm = pick(d, time.Second, 3*time.Second, 10*time.Second)
	for _, f := range faults {
		if d.IntN(5) < 2 {
			o.Faults = append(o.Faults, f)
		}
	}
	if d.IntN(2) == 0 {
		o.Copies = pick(d, 0.002, 0.02, 0.1)
	}
	if d.IntN(3) == 0 {
		o.Deaf = pick(d, 0.0005, 0.002, 0.01)
	}
	o.Guests = d.IntN(3) == 0
	d.IntN(2) // keeps what follows from a seed
	o.Recurring = d.IntN(3) > 0
	return o
}

func pick[T any](d *rand.Rand, of ...T) T { return of[d.IntN(len(of))] }

func (o *Options) String() string {
	return fmt.Sprintf("seed %d: %d queues, %d processes, lease %v, drain %v, latency %v, mute %v, pace %v, longest %v, concurrency %d, capacity %d, "+
		"prefetch %d, crashes %d, exclusive %v, failed %v, guests %v, recurring %v, timeout %v, calm %v, copies %v, deaf %v, faults %v",
		o.Seed, len(o.Queues), o.Fleet, o.Lease, o.Drain, o.Latency, o.Mute, o.Pace, o.Longest, o.Concurrency, o.Capacity,
		o.Prefetch, o.MaxCrashes, o.Exclusive, o.OnFailed, o.Guests, o.Recurring, o.Timeout, o.Calm, o.Copies, o.Deaf, o.Faults)
}

// beat returns the time between two beats.
func (o *Options) beat() time.Duration { return o.Lease / 3 }
