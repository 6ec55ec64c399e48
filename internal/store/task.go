package store

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// The names of named tasks begin with one of these: a key, a digest (a unique task), or a digest and
// a number (a raw task outside the list). In a failed queue, "#" and a number follow the first two.
const (
	keyMark    = "k:"
	uniqueMark = "u:"
	rawMark    = "r:"
)

// NameOf returns the name of the task with a key.
func NameOf(key string) string { return keyMark + key }

// KeyOf returns the key in the name of a task; "" if it has none.
func KeyOf(name string) string {
	key, ok := strings.CutPrefix(name, keyMark)
	if !ok {
		return ""
	}
	return key
}

// UniqueName returns the name of the unique task with a payload of at most MaxDigested bytes.
func UniqueName(payload []byte) string { return uniqueMark + DigestOf(payload) }

// DigestIn returns the digest of the payload in the name of a task that has one; the zero Digest for others.
func DigestIn(name string) (d Digest) {
	kind, rest, _ := strings.Cut(name, ":")
	if kind == "r" {
		rest, _, _ = strings.Cut(rest, ":")
	}
	if (kind != "u" && kind != "r") || len(rest) != 2*len(d) {
		return Digest{}
	}
	if _, err := hex.Decode(d[:], []byte(rest)); err != nil {
		return Digest{}
	}
	return d
}

// isDigest reports whether a text is a digest.
func isDigest(text string) bool {
	return len(text) == 2*sha1.Size && strings.Trim(text, "0123456789abcdef") == ""
}

// IsNamed reports whether an attempt's id is that of a named task.
func IsNamed(attempt string) bool { return strings.HasSuffix(attempt, "n") }
