package recur

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A memo stores times for a schedule. It needs a lock.
type memo map[int64]time.Time

func (m memo) add(mu sync.Locker, n int64) {
	mu.Lock()
	defer mu.Unlock()
	if len(m) > 500 {
		clear(m)
	}
	m[n] = time.Unix(n, 0)
}

type lockLast struct {
	memo memo
	mu   sync.Mutex
}

type lockElsewhere struct {
	memo memo
	mu   *sync.Mutex
}

// A lockByChannel has a lock that isn't from package sync.
type lockByChannel struct {
	memo memo
	free chan bool
}

func (s *lockByChannel) Lock()   { s.free <- true }
func (s *lockByChannel) Unlock() { <-s.free }

type lockInRing struct {
	next *lockInRing
	memo memo
	mu   sync.Mutex
}

// Data that a lock guards isn't read, wherever the lock is: reading a map during a write would
// crash the process.
func TestGuarded(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]func(m memo) (v any, mu sync.Locker){
		"after it":         func(m memo) (any, sync.Locker) { s := &lockLast{memo: m}; return s, &s.mu },
		"behind a pointer": func(m memo) (any, sync.Locker) { s := &lockElsewhere{m, &sync.Mutex{}}; return s, s.mu },
		"outside": func(m memo) (any, sync.Locker) {
			s := &struct {
				in *struct{ memo memo }
				mu sync.Mutex
			}{in: &struct{ memo memo }{m}}
			return s, &s.mu
		},
		"embedded": func(m memo) (any, sync.Locker) {
			s := &struct {
				memo memo
				sync.Locker
			}{m, &sync.Mutex{}}
			return s, s
		},
		"hidden": func(m memo) (any, sync.Locker) { // its type doesn't show it
			mu := &sync.Mutex{}
			return &struct {
				memo memo
				mu   interface{ Lock() }
			}{m, mu}, mu
		},
		"in an interface": func(m memo) (any, sync.Locker) { s := &lockLast{memo: m}; return struct{ in any }{s}, &s.mu },
		"in a map":        func(m memo) (any, sync.Locker) { s := &lockLast{memo: m}; return map[string]any{"a": s, "b": s}, &s.mu },
		"twice in a map": func(m memo) (any, sync.Locker) {
			s := &lockByChannel{m, make(chan bool, 1)}
			return map[string]any{"a": s, "b": s}, s
		},
		"in a slice":  func(m memo) (any, sync.Locker) { s := []lockLast{{memo: m}}; return s, &s[0].mu },
		"in an array": func(m memo) (any, sync.Locker) { s := &lockLast{memo: m}; return [1]*lockLast{s}, &s.mu },
		"in a ring": func(m memo) (any, sync.Locker) {
			s := &lockInRing{memo: m}
			s.next = s
			return s, &s.mu
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, stop := memo{}, make(chan struct{})
			v, mu := guarded(m)
			var all sync.WaitGroup
			all.Go(func() {
				for n := int64(0); ; n++ {
					select {
					case <-stop:
						return
					default:
						m.add(mu, n)
					}
				}
			})
			for range 1000 {
				if _, ok := valueOf(v); ok {
					t.Error("read")
					break
				}
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

// A type that can contain changing data isn't plain, even if it doesn't contain any at the time.
// Other types may be recursive.
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
