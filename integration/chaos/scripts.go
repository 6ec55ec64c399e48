package main

import "github.com/worqr/worqr/internal/store"

// scriptName is the verb of a call to a script. Where Redis did not have it yet it
// was sent in full, of which SLOWLOG keeps too little to know it by.
func scriptName(call, digest string) string {
	if verb := store.NameOf(digest); verb != "" && call == "EVALSHA" {
		return verb
	}
	return "sent in full"
}
