package batch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// turn returns the items of the batch that a member must run, or nil if there is none.
func turn(m *Member[int]) (items []int) {
	select {
	case batch := <-m.Turn:
		for _, m := range batch {
			items = append(items, m.Item)
		}
	default:
	}
	return items
}

func add(g *Gatherer[int], items ...int) (all []*Member[int]) {
	for _, i := range items {
		all = append(all, g.Add(i))
	}
	return all
}

func want(t *testing.T, when string, m *Member[int], items ...int) {
	t.Helper()
	if got := turn(m); !slices.Equal(got, items) {
		t.Errorf("%s: %v, want %v", when, got, items)
	}
}

// A batch runs once it is full or its first member has waited long enough.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[int](3, 10, time.Second)
		m := add(g, 1, 2)
		want(t, "two wait", m[0])
		m = append(m, g.Add(3))
		want(t, "full", m[0], 1, 2, 3)
		m = add(g, 4)
		time.Sleep(600 * time.Millisecond)
		m = append(m, g.Add(5))
		time.Sleep(300 * time.Millisecond)
		want(t, "not yet", m[0])
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		want(t, "after its time", m[0], 4, 5)
		want(t, "only the first is told", m[1])
	})
}

// At most a given number of batches run concurrently. Items that have to wait join a later batch,
// up to its size.
func TestMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[int](3, 1, time.Second)
		m := add(g, 1, 2, 3, 4, 5, 6, 7)
		want(t, "the first", m[0], 1, 2, 3)
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "the second has to wait", m[3])
		g.Done()
		want(t, "the second", m[3], 4, 5, 6)
		g.SetMost(2)
		want(t, "the third", m[6], 7)
		m = add(g, 8, 9, 10)
		want(t, "no more", m[0])
		g.Done()
		want(t, "after one", m[0], 8, 9, 10)
	})
}

// A removed member is in no batch. A hurried member takes along those that wait.
func TestRemoveAndHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[int](3, 10, time.Second)
		m := add(g, 1, 2)
		if !g.Remove(m[0]) || g.Remove(m[0]) {
			t.Error("one that waits can be taken back once")
		}
		m = append(m, g.Add(3))
		g.Hurry(m[2])
		want(t, "hurried", m[1], 2, 3)
		if g.Remove(m[1]) || g.Remove(m[2]) {
			t.Error("one in a batch can't be taken back")
		}
		g = New[int](3, 10, -time.Second)
		want(t, "without a wait", g.Add(1), 1)
	})
}
