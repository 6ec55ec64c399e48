package worqr

import "github.com/worqr/worqr/internal/store"

var newID, newIDs, begun = store.NewID, store.NewIDs, store.StartedAt
