package recur

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// The ends of schedules: what to judge, as soon as this peer has asserted its own for twice the
// period. By then, all peers that live have done so, too, whatever happened to Redis before.
type ends struct {
	over map[string]store.Target // queues with a schedule that nobody asserts, by id
	left map[id]left
}

// A left is a schedule that this peer had. It must judge that itself if nobody serves the queue.
type left struct {
	place Place
	since time.Time // when this peer can't have asserted it any more; zero: not yet
}

func newEnds() ends { return ends{map[string]store.Target{}, map[id]left{}} }

// Over is called when a schedule of a queue isn't asserted any more.
func (s *Schedules) Over(q store.Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.ends.over[q.ID]; !known {
		s.ends.over[q.ID] = q
		s.stir()
	}
}

func (s *Schedules) mayJudge() bool { return time.Since(s.steady) > 2*s.period }

// judge ends schedules that nobody asserts, in queues that have some.
func (s *Schedules) judge(ctx context.Context) {
	gone := s.gone(time.Now())
	if !s.mayJudge() {
		return
	}
	s.mu.Lock()
	all := maps.Clone(s.ends.over)
	s.mu.Unlock()
	for at, l := range gone {
		q, err := l.place(ctx)
		if err != nil {
			delete(gone, at)
			continue
		}
		all[q.ID] = q
	}
	for _, q := range slices.SortedFunc(maps.Values(all), func(a, b store.Target) int { return strings.Compare(a.ID, b.ID) }) {
		if _, err := s.ask(ctx, q, nil); err != nil && !store.IsWrongType(err) {
			if ctx.Err() == nil {
				s.steady = time.Now()
			}
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range all {
		delete(s.ends.over, name) // beats tell if there are more
	}
	for at, l := range gone {
		if s.ends.left[at].since.Equal(l.since) {
			delete(s.ends.left, at)
		}
	}
}

// gone returns what this peer has left so long ago that nobody asserts it if no other peer does. The
// loop calls it, so nothing is being asserted.
func (s *Schedules) gone(now time.Time) map[id]left {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[id]left{}
	for at, l := range s.ends.left {
		if l.since.IsZero() {
			l.since = now
			s.ends.left[at] = l
		}
		if now.Sub(l.since) > s.period {
			all[at] = l
		}
	}
	return all
}
