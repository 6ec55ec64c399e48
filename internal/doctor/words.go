package doctor

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

// veil is the last part of a key without what may be secret: what users have
// named.
func veil(kind, part string) string {
	switch {
	case kind == "process" || kind == "working" || kind == "batch" || kind == "cancel" && isDigest(part) || kind == "keyed" && strings.HasPrefix(part, "r:"):
		return words.Clip(part)
	case store.KeyOf(part) != "":
		return store.EntryOf(veil("", store.KeyOf(part)))
	}
	sum := sha1.Sum([]byte(part))
	return "#" + hex.EncodeToString(sum[:])
}

// isDigest reports whether it is one of a payload. What users have named may be as long.
func isDigest(s string) bool {
	return len(s) == 2*sha1.Size && strings.Trim(s, "0123456789abcdef") == ""
}
