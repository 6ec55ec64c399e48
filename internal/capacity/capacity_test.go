package capacity_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/capacity"
)

// A share counts its pokes.
type share struct {
	*capacity.Share
	pokes int
}

func add(c *capacity.Capacity, weight, priority int) *share {
	s := &share{}
	s.Share = c.Share(weight, priority, func() { s.pokes++ })
	return s
}

// Take is Take for a queue that has tasks.
func (s *share) Take(n int) (got, units int) {
	s.Needs(true)
	return s.Share.Take(n)
}

// take returns only the number of tasks.
func (s *share) take(n int) int {
	got, _ := s.Take(n)
	return got
}

// poked calls Pass and returns which of the shares it poked.
func poked(c *capacity.Capacity, shares ...*share) (which []int) {
	for _, s := range shares {
		s.pokes = 0
	}
	c.Pass()
	for i, s := range shares {
		if s.pokes > 0 {
			which = append(which, i)
		}
	}
	return which
}

// free takes all free units and returns their number; no share may wait.
func free(c *capacity.Capacity) int {
	s := add(c, 1, 0)
	n, units := s.Take(1 << 30)
	s.Sated()
	s.Give(n, units)
	return n
}

func TestTotalChanges(t *testing.T) {
	is := is.New(t)
	c := capacity.New(0)
	a, b := add(c, 2, 0), add(c, 1, 0)
	is.Equal(a.take(5), 5)
	is.Equal(b.take(5), 5)
	c.SetTotal(10) // 15 are used
	is.Equal(a.take(1), 0)
	is.Equal(b.take(1), 0)
	a.Give(2, 2)
	is.Equal(poked(c, a, b), nil)
	a.Give(1, 2)
	is.Equal(poked(c, a, b), nil) // one is free, and held back for a
	is.Equal(b.take(1), 0)
	c.SetTotal(11)
	is.Equal(poked(c, a, b), []int{0})
	c.SetTotal(0)
	is.Equal(b.take(1), 1) // all units are taken
	is.Equal(poked(c, a, b), []int{0})
	is.Equal(a.take(1), 1)
	a.Give(3, 2)
	b.Give(6, 1)
	c.SetTotal(9)
	is.Equal(free(c), 9)
}

// A task heavier than a lowered total runs alone, and gives back the units that it took.
func TestHeavierThanTotal(t *testing.T) {
	is := is.New(t)
	c := capacity.New(8)
	a, b := add(c, 6, 0), add(c, 1, 0)
	is.Equal(b.take(4), 4)
	is.Equal(a.take(2), 0)
	c.SetTotal(3)
	b.Give(3, 1)
	is.Equal(poked(c, a, b), nil)
	is.Equal(b.take(1), 0)
	b.Give(1, 1)
	is.Equal(poked(c, a, b), []int{0})
	got, units := a.Take(2)
	is.Equal(got, 1)
	is.Equal(units, 3)
	c.SetTotal(8)
	is.Equal(b.take(1), 1) // it has waited longer
	is.Equal(b.take(1), 0) // held back: 4 units are free, and the next task of a now weighs 6
	a.Give(got, units)
	is.Equal(poked(c, a, b), []int{0})
	got, units = a.Take(1)
	is.Equal(got, 1)
	is.Equal(units, 6)
}

func TestTooMuchBack(t *testing.T) {
	is := is.New(t)
	s := add(capacity.New(1), 1, 0)
	is.Equal(s.take(1), 1)
	defer func() { is.True(recover() != nil) }()
	s.Give(2, 1)
}

// A poke may take units at once, and call Pass: one Pass gives all units away.
func TestPokeTakes(t *testing.T) {
	for _, pass := range []bool{false, true} {
		is := is.New(t)
		c := capacity.New(1000)
		first := add(c, 1, 0)
		is.Equal(first.take(1000), 1000)
		var got [3]int
		for i := range got {
			var s *capacity.Share
			s = c.Share(1, 0, func() {
				k, _ := s.Take(500 - got[i])
				got[i] += k
				if pass {
					c.Pass()
				}
			})
			s.Take(500)
		}
		first.Sated()
		first.Give(1000, 1)
		c.Pass()
		is.Equal(got, [3]int{334, 333, 333})
	}
}

// Several queues make random calls.
func TestRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			rnd := rand.New(rand.NewPCG(seed, 0))
			total := rnd.IntN(20)
			c := capacity.New(total)
			type queue struct {
				*share
				waits  bool
				hungry bool
				runs   []int // units of each
			}
			var queues []*queue
			used := 0
			take := func(q *queue, n int) int {
				got, units := q.Take(n)
				q.waits, q.hungry = got < n, true
				for range got {
					q.runs = append(q.runs, units)
				}
				used += got * units
				is.True(got <= n)
				is.True(total > 0 || !q.waits)                   // all units are taken
				is.True(got == 0 || total == 0 || used <= total) // never above total
				return got
			}
			give := func(q *queue) {
				i := rnd.IntN(len(q.runs))
				used -= q.runs[i]
				q.Give(1, q.runs[i])
				q.waits = q.waits || q.hungry && total > 0
				q.runs = slices.Delete(q.runs, i, i+1)
			}
			// settle answers pokes until there are no more.
			settle := func() {
				for {
					var who *queue
					c.Pass()
					for _, q := range queues {
						if q.pokes > 0 {
							is.True(who == nil) // one at a time
							is.True(q.waits)
							who, q.pokes = q, 0
						}
					}
					if who == nil {
						break
					}
					is.True(take(who, 1+rnd.IntN(3)) > 0) // it was its turn
				}
				for _, q := range queues {
					if q.waits {
						is.True(used > 0)                   // progress is certain
						is.Equal(take(q, 1+rnd.IntN(3)), 0) // no queue was skipped
					}
				}
			}
			for i := range 1 + rnd.IntN(6) {
				queues = append(queues, &queue{share: add(c, 1+rnd.IntN(5), i%3)})
			}
			for range 5000 {
				q := queues[rnd.IntN(len(queues))]
				switch rnd.IntN(20) {
				default:
					if len(q.runs) > 0 {
						give(q)
					}
				case 0, 1, 2, 3, 4, 5, 6:
					take(q, 1+rnd.IntN(6))
				case 7:
					q.Sated()
					q.waits, q.hungry = false, false
				case 8:
					q.Set(1+rnd.IntN(25), rnd.IntN(3))
				case 9:
					total = max(rnd.IntN(22)-1, 0)
					c.SetTotal(total)
				case 10:
					q.Needs(false)
				}
				if rnd.IntN(3) > 0 {
					settle()
				}
			}
			for _, q := range queues {
				q.Sated()
				q.waits, q.hungry = false, false
				for len(q.runs) > 0 {
					give(q)
				}
			}
			settle()
			is.Equal(used, 0)
			c.SetTotal(17)
			is.Equal(free(c), 17)
		})
	}
}

// If all n queues always have tasks, each gets at least one of every 8n tasks.
func TestNobodyStarves(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			rnd := rand.New(rand.NewPCG(seed, 1))
			const plenty = 1000
			c := capacity.New(1)
			shares := make([]*share, 1+rnd.IntN(8))
			missed := make([]int, len(shares)) // tasks of others since its own last one
			most := 0
			type run struct{ who, units int }
			var runs []run
			take := func(i int) {
				got, units := shares[i].Take(plenty)
				for range got {
					runs = append(runs, run{i, units})
				}
				for j := range shares {
					missed[j] += got
				}
				if got > 0 {
					missed[i] = 0
				}
				most = max(most, slices.Max(missed))
			}
			for i := range shares {
				shares[i] = add(c, 1+rnd.IntN(10), rnd.IntN(4))
				take(i)
			}
			clear(missed)
			most = 0
			for range 20000 {
				if len(runs) > 0 {
					i := rnd.IntN(len(runs))
					shares[runs[i].who].Give(1, runs[i].units)
					runs = slices.Delete(runs, i, i+1)
				}
				switch i := rnd.IntN(len(shares)); rnd.IntN(40) {
				case 0:
					c.SetTotal(1 + rnd.IntN(12))
				case 1:
					shares[i].Set(1+rnd.IntN(10), rnd.IntN(4))
				default:
					take(i) // perhaps out of turn
				}
				for {
					who := poked(c, shares...)
					if len(who) == 0 {
						break
					}
					take(who[0])
				}
				is.True(len(runs) > 0)
			}
			is.True(most < 8*len(shares))
		})
	}
}

// A share that sometimes wants nothing doesn't lose its place.
func TestFickle(t *testing.T) {
	is := is.New(t)
	c := capacity.New(1)
	busy, fickle := add(c, 1, 1), add(c, 1, 0)
	is.Equal(busy.take(9), 1)
	n := 0
	for range 800 {
		is.Equal(fickle.take(1), 0)
		busy.Give(1, 1)
		if fickle.take(1) > 0 {
			n++
			is.Equal(busy.take(9), 0)
			fickle.Give(1, 1)
		}
		is.Equal(busy.take(9), 1)
		fickle.Sated()
	}
	is.True(n >= 100)
}
