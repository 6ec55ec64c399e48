package recur

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type node struct {
	n    int
	next *node
}

func TestValueOf(t *testing.T) {
	t.Parallel()
	type fields struct {
		A any
		B any
	}
	berlin, again := zone(t, "Europe/Berlin"), zone(t, "Europe/Berlin")
	_ = time.Now().In(again).String() // fills its cache
	long := map[int]int{}
	for i := range mostKeys + 1 {
		long[i] = i
	}
	ring := &node{}
	ring.next = ring
	at := time.Now()
	for name, c := range map[string]struct {
		a, b any
		same bool
	}{
		"numbers":            {1, 1, true},
		"other numbers":      {1, 2, false},
		"other types":        {int32(1), int64(1), false},
		"booleans":           {true, false, false},
		"floats":             {1.5, 1.25, false},
		"unsigned":           {uint8(3), uint8(3), true},
		"what is pointed to": {&node{1, &node{n: 2}}, &node{1, &node{n: 2}}, true},
		"deeper":             {&node{1, &node{n: 2}}, &node{1, &node{n: 3}}, false},
		"nothing there":      {&node{1, nil}, &node{1, &node{}}, false},
		"slices":             {[]string{"a", "bc"}, []string{"ab", "c"}, false},
		"arrays":             {[2]int{1, 2}, [2]int{1, 2}, true},
		"maps":               {map[string]bool{"a": true, "b": false}, map[string]bool{"b": false, "a": true}, true},
		"other maps":         {map[string]bool{"a": true}, map[string]bool{"a": false}, false},
		"zones":              {fields{A: berlin}, fields{A: again}, true},
		"other zones":        {fields{A: berlin}, fields{A: time.Local}, false},
		"no zone":            {fields{A: (*time.Location)(nil)}, fields{A: time.UTC}, true},
		"zones in private":   {nightly{zone: berlin}, nightly{zone: again}, true},
		"times":              {fields{A: at}, fields{A: at.Round(0)}, true},
		"other times":        {fields{A: at}, fields{A: at.Add(1)}, false},
		"nothing":            {nil, nil, true},
	} {
		a, ok := valueOf(c.a)
		b, too := valueOf(c.b)
		if !ok || !too || bytes.Equal(a, b) != c.same {
			t.Errorf("%s: %t, want %t (%t, %t)", name, bytes.Equal(a, b), c.same, ok, too)
		}
	}
	for name, v := range map[string]any{
		"a function":         every(time.Hour),
		"one inside":         fields{B: []any{func() {}}},
		"one in a map":       map[string]func(){"a": nil},
		"a lock":             &struct{ mu sync.Mutex }{},
		"an atomic":          &struct{ n atomic.Int64 }{},
		"a time in private":  struct{ at time.Time }{at},
		"very deep":          ring,
		"very long":          make([]int, mostValues),
		"a very large map":   long,
		"a channel":          make(chan int),
		"a map in a private": struct{ m map[string]chan int }{map[string]chan int{"": nil}},
	} {
		if _, ok := valueOf(v); ok {
			t.Errorf("%s: read", name)
		}
	}
}
