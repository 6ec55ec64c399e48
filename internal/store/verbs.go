package store

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// Verbs returns the verb of each script by its digest, which is what Redis calls
// it in its slow log.
func Verbs() map[string]string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // they are embedded
	}
	verbs := map[string]string{}
	for _, e := range entries {
		verb := strings.TrimSuffix(e.Name(), ".lua")
		if !strings.HasPrefix(verb, "lib_") {
			sum := sha1.Sum([]byte(source(verb)))
			verbs[hex.EncodeToString(sum[:])] = verb
		}
	}
	return verbs
}
