package main

import (
	"sync"

	"github.com/worqr/worqr/internal/store"
)

var verbs = sync.OnceValue(store.Verbs)

// scriptName is the verb of a call to a script. Where Redis did not have it yet it
// was sent in full, of which SLOWLOG keeps too little to know it by.
func scriptName(call, digest string) string {
	if verb := verbs()[digest]; verb != "" && call == "EVALSHA" {
		return verb
	}
	return "sent in full"
}
