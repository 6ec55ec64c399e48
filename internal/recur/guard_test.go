package recur

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A memo is where schedules remember times. It has to be locked.
type memo map[int64]time.Time

func (m memo) next(mu sync.Locker, t time.Time) time.Time {
	mu.Lock()
	defer mu.Unlock()
	if len(m) > 500 {
		clear(m)
	}
	at := t.Truncate(time.Hour).Add(time.Hour)
	m[t.Unix()] = at
	return at
}

type lockLast struct {
	memo memo
	mu   sync.Mutex
}

func (s *lockLast) Next(t time.Time) time.Time { return s.memo.next(&s.mu, t) }

type lockElsewhere struct {
	memo memo
	mu   *sync.Mutex
}

func (s *lockElsewhere) Next(t time.Time) time.Time { return s.memo.next(s.mu, t) }

type lockOutside struct {
	in *struct{ memo memo }
	mu sync.Mutex
}

func (s *lockOutside) Next(t time.Time) time.Time { return s.in.memo.next(&s.mu, t) }

type lockEmbedded struct {
	memo memo
	sync.Locker
}

func (s *lockEmbedded) Next(t time.Time) time.Time { return s.memo.next(s, t) }

// lockHidden has a lock that its type doesn't tell.
type lockHidden struct {
	memo memo
	mu   interface{ Lock() }
}

func (s *lockHidden) Next(t time.Time) time.Time { return s.memo.next(s.mu.(sync.Locker), t) }

type lockInside struct{ in any }

func (s lockInside) Next(t time.Time) time.Time { return s.in.(Schedule).Next(t) }

type lockInMap struct{ in map[string]any }

func (s lockInMap) Next(t time.Time) time.Time {
	s.in["b"].(Schedule).Next(t)
	return s.in["a"].(Schedule).Next(t)
}

// Its lock isn't of package sync.
type lockByChannel struct {
	memo memo
	free chan bool
}

func (s *lockByChannel) Lock()                      { s.free <- true }
func (s *lockByChannel) Unlock()                    { <-s.free }
func (s *lockByChannel) Next(t time.Time) time.Time { return s.memo.next(s, t) }

type lockInSlice struct{ in []lockLast }

func (s lockInSlice) Next(t time.Time) time.Time { return s.in[0].Next(t) }

type lockInArray struct{ in [1]*lockLast }

func (s *lockInArray) Next(t time.Time) time.Time { return s.in[0].Next(t) }

type lockInRing struct {
	next *lockInRing
	memo memo
	mu   sync.Mutex
}

func (s *lockInRing) Next(t time.Time) time.Time { return s.memo.next(&s.mu, t) }

// What a lock guards isn't read, wherever the lock is: a map that is written meanwhile would end the
// process.
func TestGuarded(t *testing.T) {
	t.Parallel()
	fresh := func() *lockLast { return &lockLast{memo: memo{}} }
	byChannel := func() *lockByChannel { return &lockByChannel{memo{}, make(chan bool, 1)} }
	ring := &lockInRing{memo: memo{}}
	ring.next = ring
	for name, s := range map[string]Schedule{
		"after it":         fresh(),
		"behind a pointer": &lockElsewhere{memo{}, &sync.Mutex{}},
		"outside":          &lockOutside{in: &struct{ memo memo }{memo{}}},
		"embedded":         &lockEmbedded{memo{}, &sync.Mutex{}},
		"hidden":           &lockHidden{memo{}, &sync.Mutex{}},
		"in an interface":  lockInside{fresh()},
		"in a map":         lockInMap{map[string]any{"a": fresh(), "b": fresh()}},
		"twice in a map":   lockInMap{map[string]any{"a": byChannel(), "b": byChannel()}},
		"in a slice":       lockInSlice{[]lockLast{{memo: memo{}}}},
		"in an array":      &lockInArray{[1]*lockLast{fresh()}},
		"in a ring":        ring,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stop := make(chan struct{})
			var all sync.WaitGroup
			all.Go(func() {
				for at := time.Unix(0, 0); ; at = at.Add(time.Second) {
					select {
					case <-stop:
						return
					default:
						s.Next(at)
					}
				}
			})
			for range 1000 {
				if _, ok := valueOf(s); ok {
					t.Error("read")
					break
				}
			}
			one, other := (&Spec{Schedule: s}).Print(), (&Spec{Schedule: every(time.Hour)}).Print()
			if one != other {
				t.Error("it's compared by more than its times")
			}
			close(stop)
			all.Wait()
		})
	}
}

type (
	tree struct {
		kids []tree
		by   map[string]*tree
		n    int
	}
	locks struct {
		//lint:ignore U1000 its type counts
		kids []locks
		//lint:ignore U1000 its type counts
		by map[string]*locks
		//lint:ignore U1000 its type counts
		mu *sync.RWMutex
	}
)

// A type with what changes isn't plain, even if there is none at the time. Others may be recursive.
func TestGuardedTypes(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"a map":             &struct{ m sync.Map }{},
		"an atomic pointer": &struct{ p atomic.Pointer[memo] }{},
		"an atomic value":   &struct{ v atomic.Value }{},
		"once":              &struct{ o *sync.Once }{},
		"a pool":            &struct{ p map[string]*sync.Pool }{},
		"a function":        &struct{ s []func() }{},
		"a channel":         &struct{ s *struct{ c chan int } }{},
		"a key":             map[chan int]bool{},
		"a recursive type":  &locks{},
		"no lock":           &lockElsewhere{},
		"a typed nil":       struct{ v any }{(*lockLast)(nil)},
		"many":              [1]any{&[1]any{[]any{[]lockLast{}}}},
	} {
		if _, ok := valueOf(v); ok {
			t.Errorf("%s: read", name)
		}
	}
	leaf := tree{n: 1}
	a, ok := valueOf(&tree{kids: []tree{leaf}, by: map[string]*tree{"a": &leaf, "b": nil}})
	b, too := valueOf(&tree{kids: []tree{leaf}, by: map[string]*tree{"b": nil, "a": {n: 1}}})
	if !ok || !too || !slices.Equal(a, b) {
		t.Errorf("a plain recursive type: %t, %t", ok, too)
	}
}
