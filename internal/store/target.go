package store

import "github.com/worqr/worqr/internal/keys"

// A Target is a queue to which tasks are added.
type Target struct {
	Name string
	ID   string // the name, or an id of its failed queue
	Keys keys.Queue
}
