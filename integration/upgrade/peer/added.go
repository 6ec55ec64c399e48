package main

import (
	"context"
	"math/rand/v2"

	"github.com/worqr/worqr"
)

func init() {
	add = func(ctx context.Context, q *worqr.Queue, payload []byte) error {
		props := &worqr.Properties{Headers: map[string]string{"of": string(payload)}}
		if rand.IntN(2) == 0 {
			props = nil
		}
		_, err := q.Add(ctx, payload, props)
		return err
	}
}
