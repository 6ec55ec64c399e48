package main

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"

	"github.com/worqr/worqr/internal/script"
)

var verbs = sync.OnceValue(script.Verbs)

// scriptName is the verb of a call to a script, or its digest.
func scriptName(call, of string) string {
	if call == "EVAL" {
		sum := sha1.Sum([]byte(of))
		of = hex.EncodeToString(sum[:])
	}
	if verb := verbs()[of]; verb != "" {
		return verb
	}
	return of
}
