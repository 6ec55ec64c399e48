package topology

import (
	"fmt"
	"slices"
	"testing"

	"github.com/worqr/worqr/internal/keys"
)

func at(host any, port int64) []any { return []any{host, port, []byte("id")} }

// A node's answer about slots is parsed, within limits.
func TestReadSlots(t *testing.T) {
	t.Parallel()
	said, err := readSlots([]any{
		[]any{int64(0), int64(99), at([]byte("h1"), 1), at([]byte("r1"), 2)},
		[]any{int64(100), int64(199), at(nil, 3)},
		[]any{int64(200), int64(299), at([]byte(""), 4), at([]byte("?"), 5)},
		[]any{int64(300), int64(399), at([]byte("?"), 6)},
		[]any{int64(400), int64(400), at([]byte("::1"), 7)},
	}, "asked:1234")
	if err != nil {
		t.Fatal(err)
	}
	for slot, want := range map[int]string{0: "h1:1", 99: "h1:1", 100: "asked:3", 299: "asked:4", 300: "", 400: "[::1]:7", 401: ""} {
		if got := said.owners[slot]; got != want {
			t.Errorf("%d: %q, want %q", slot, got, want)
		}
	}
	if !slices.Equal(said.others, []string{"r1:2"}) {
		t.Error(said.others)
	}
	for _, bad := range []any{
		nil, "x", []any{nil}, []any{[]any{int64(0), int64(1)}}, []any{[]any{int64(0), int64(keys.Slots), at([]byte("h"), 1)}},
		[]any{[]any{int64(-1), int64(1), at([]byte("h"), 1)}}, []any{[]any{int64(2), int64(1), at([]byte("h"), 1)}},
		[]any{[]any{[]byte("0"), int64(1), at([]byte("h"), 1)}}, []any{[]any{int64(0), int64(1), at([]byte("h"), 70_000)}},
		[]any{[]any{int64(0), int64(1), []any{}}}, []any{[]any{int64(0), int64(1), at(make([]byte, 300), 1)}},
		slices.Repeat([]any{[]any{int64(0), int64(0), at([]byte("h"), 1)}}, keys.Slots+1),
	} {
		if _, err := readSlots(bad, "asked:1"); err == nil {
			t.Errorf("%v was read", bad)
		}
	}
}

// A Cluster handles single slots and complete answers, keeps the last owner of a slot without an
// owner. Its listeners are notified of changes only.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := NewCluster([]string{"seed:1"}, nil)
	told := 0
	c.onChange(func() { told++ })
	for range 2 {
		c.moved(7, "a:1")
	}
	if c.owner(7) != "a:1" || c.owner(8) != "" || told != 1 {
		t.Error(c.owner(7), c.owner(8), told)
	}
	whole := &owned{others: []string{"r:1"}}
	whole.owners[8] = "b:1"
	for range 2 {
		c.take(whole)
	}
	owners, known := c.all()
	if c.owner(7) != "a:1" || c.owner(8) != "b:1" || told != 2 || fmt.Sprint(owners, known) != "[a:1 b:1] [a:1 b:1 r:1 seed:1]" {
		t.Error(c.owner(7), c.owner(8), told, owners, known)
	}
}
