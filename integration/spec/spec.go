package spec

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

type verb func(s *Store, c store.Call, at time.Time) any

// of makes a verb of a function on a queue.
func of(f func(*queue, store.Call) any) verb {
	return func(s *Store, c store.Call, at time.Time) any { return f(newQueue(s, c.Keys, c.Args, at), c) }
}

// verbs are those that are specified. Each file adds its own.
var verbs = map[string]verb{}
