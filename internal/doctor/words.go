package doctor

import (
	"crypto/sha1"
	"encoding/hex"

	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

// veil returns the last part of a key, or a name of a task. It hides what users chose, since that may be
// secret.
func veil(kind, part string) string {
	switch {
	case kind == "process" || kind == "working" || kind == "canceled" && store.IsDigest(part) || store.DigestIn(part).String() != "":
		return words.Clip(part)
	case store.KeyOf(part) != "":
		return "k:" + veil("", store.KeyOf(part))
	}
	sum := sha1.Sum([]byte(part))
	return "#" + hex.EncodeToString(sum[:])
}
