package doctor

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/worqr/worqr/internal/store"
)

// veil is the last part of a key without what may be secret: what users have
// named.
func veil(kind, part string) string {
	switch {
	case kind == "process" || kind == "working" || kind == "batch" || kind == "cancel" && isDigest(part) || kind == "keyed" && strings.HasPrefix(part, "r:"):
		return Clip(part)
	case store.KeyOf(part) != "":
		return store.EntryOf(veil("", store.KeyOf(part)))
	}
	sum := sha1.Sum([]byte(part))
	return "#" + hex.EncodeToString(sum[:])
}

// isDigest reports whether it is one of a payload. What users have named may be as long.
func isDigest(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 2*sha1.Size
}

// Shown is what others have written, bounded, and quoted where a terminal would act on
// it.
func Shown(s string) string {
	s = Clip(s)
	for _, r := range s {
		if r == '"' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// Clip bounds what others have named.
func Clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// Several is a number of things.
func Several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Tasks is a number of them, with their verb.
func Tasks(n int, one, more string) string {
	if n == 1 {
		more = one
	}
	return Several(n, "task") + " " + more
}

// Clock is a time as people read it.
func Clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }
