package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

// A call deletes 100 entries, or as many as have a mebibyte of payloads.
func TestDeleteIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries, size int
		left          int64
	}{
		"entries": {450, 1, 350},
		"bytes":   {10, 300 << 10, 6},
		"exactly": {10, 256<<10 - 1, 6}, // and a digit each
		"almost":  {10, 349524, 6},
		"one":     {2, 2 << 20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, redistest.URL(), nil)
			for i := range c.entries {
				payload := fmt.Sprint(strings.Repeat("x", c.size), i)
				e.must(nil, Put(e.ctx, e.line, e.q, fmt.Sprint("k:", i), Change{Payload: []byte(payload), When: Always}))
			}
			d := decode(do(e.ctx, e.line, deleteQueue.Call(append(shared(e.q), e.q.Batches()), prefixes(e.q, e.q.Channel(keys.KindDelete), "0", 1, e.q.Batch(""))...)))
			if _, left := d.string(), d.int(); d.err != nil || left != c.left {
				t.Errorf("%d entries are left, not %d: %v", left, c.left, d.err)
			}
			e.must(nil, Delete(e.ctx, e.line, e.q))
			if n := e.count("ZCARD", "contents"); n != 0 {
				t.Errorf("%d are left in the end", n)
			}
		})
	}
}
