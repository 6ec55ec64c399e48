package worqr_test

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

func TestBadBatchOptions(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{Capacity: 10})
	h := func(context.Context, []*worqr.Task) []error { return nil }
	for name, o := range map[string]*worqr.BatchOptions{
		"Size":              {Size: -1},
		"Size too large":    {Size: 10_001},
		"Concurrency":       {HandleOptions: worqr.HandleOptions{Concurrency: -1}},
		"Concurrency large": {HandleOptions: worqr.HandleOptions{Concurrency: 1 << 30}},
		"Weight":            {HandleOptions: worqr.HandleOptions{Weight: 11}},
		"Timeout":           {HandleOptions: worqr.HandleOptions{Timeout: time.Second}, Wait: time.Second},
		"Timeout, default":  {HandleOptions: worqr.HandleOptions{Timeout: time.Millisecond}},
	} {
		panics(t, name, func() { q.HandleBatch(h, o) })
	}
	panics(t, "nil", func() { q.HandleBatch(nil, nil) })
	q.HandleBatch(h, nil) // the failures left nothing
	panics(t, "twice", func() { q.HandleBatch(h, nil) })
	panics(t, "Use", func() { p.Use(func(h worqr.Handler) worqr.Handler { return h }) })
	is.NoErr(q.SetOptions(&worqr.HandleOptions{Concurrency: 2}))
}
