package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// Members that stay are read once, in order, while others around them are added, removed and moved: with
// different scores, with equal ones, in either direction.
func TestRanking(t *testing.T) {
	for _, equal := range []bool{false, true} {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprint("equal=", equal, " reverse=", reverse), func(t *testing.T) {
				b := newBench(t)
				random := rand.New(rand.NewPCG(1, 2))
				score := func(i int) int {
					if equal {
						return i / 1500
					}
					return i
				}
				set := func(command string, names ...int) {
					for _, i := range names {
						if command == "ZADD" {
							redistest.Do(t, b.conn, "ZADD", b.key("ready"), score(i), fmt.Sprintf("%05d", i))
						} else {
							redistest.Do(t, b.conn, "ZREM", b.key("ready"), fmt.Sprintf("%05d", i))
						}
					}
				}
				var stay []string
				const n = 4000
				for i := range n {
					set("ZADD", i)
					if i%4 == 0 {
						stay = append(stay, fmt.Sprintf("%05d", i))
					}
				}
				if reverse {
					slices.Reverse(stay)
				}
				r := &ranking{by: b.line, key: b.key("ready"), reverse: reverse}
				var got []string
				for {
					page := redistest.Sure(r.page(t.Context()))(t)
					if len(page) == 0 {
						break
					}
					for _, m := range page {
						got = append(got, m.name)
					}
					around := int(page[len(page)-1].name[0]) // anywhere, and many at once
					for range 300 {
						i := random.IntN(n/4)*4 + 1 + random.IntN(3)
						set([]string{"ZADD", "ZREM"}[(around+i)%2], i)
					}
				}
				stayed := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return !slices.Contains(stay, name) })
				if !slices.Equal(stayed, stay) {
					t.Errorf("%d of %d", len(stayed), len(stay))
				}
				slices.Sort(got)
				b.is.Equal(len(slices.Compact(slices.Clone(got))), len(got)) // also of the others, none comes twice
			})
		}
	}
}

// All that was read has gone, or the whole set has.
func TestRankingLosesItsPlace(t *testing.T) {
	b := newBench(t)
	for i := range 2000 {
		redistest.Do(t, b.conn, "ZADD", b.key("ready"), 7, fmt.Sprintf("%05d", i))
	}
	r := &ranking{by: b.line, key: b.key("ready")}
	for range 4 {
		redistest.Sure(r.page(t.Context()))(t)
	}
	last := r.last.name
	redistest.Do(t, b.conn, "ZREMRANGEBYLEX", b.key("ready"), "-", "["+last)
	page := redistest.Sure(r.page(t.Context()))(t)
	b.is.True(page[0].name > last && page[0].name == fmt.Sprintf("%05d", atoi(last)+1))
	redistest.Do(t, b.conn, "DEL", b.key("ready"))
	b.is.Equal(len(redistest.Sure(r.page(t.Context()))(t)), 0)
}

func atoi(text string) int { return int(numberIn(text)) }
