// Package causes determines which errors have the same cause.
package causes

import (
	"regexp"
	"strings"
)

// The parts that differ between errors with the same cause.
var (
	uuids  = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	quoted = regexp.MustCompile("\"[^\"]*\"|`[^`]*`" + `|(^|[^0-9A-Za-z])'[^']*'`) // not the apostrophe in "can't"
	names  = regexp.MustCompile(`[#=:/.@]?[0-9A-Za-zµμ]+([-_][0-9A-Za-zµμ]+)*`)
	words  = regexp.MustCompile(`[0-9A-Za-zµμ]+`)
	dotted = regexp.MustCompile(`…([.:,/_+-]?…)+`) // addresses, times
)

// The shapes of words that have a digit, each tried before the next.
var (
	hex     = regexp.MustCompile(`^(?i)[0-9a-f]+$`)
	amount  = regexp.MustCompile(`^[0-9]+[A-Za-zµμ]{0,3}$`) // "17", "17ms"
	mixed   = regexp.MustCompile(`^[0-9]|[0-9][^0-9]+[0-9]|^.{16}`)
	between = regexp.MustCompile(`^[^0-9]+[0-9]+[^0-9]+$`) // an id, or a name such as "base64url"
	digits  = regexp.MustCompile(`[0-9]+`)
)

// uneven matches letters that aren't words in camel case.
var uneven = regexp.MustCompile(`[a-z][A-Z]{2}|[A-Z][a-z][A-Z]`)

// longest is how many bytes of an error count.
const longest = 400

// Of returns the first line of an error without the parts that differ between errors with the same cause: ids,
// numbers, addresses, times and quoted text. A name with a number, such as "sha256", keeps its letters.
func Of(err string) string {
	err, _, _ = strings.Cut(err, "\n")
	err = err[:min(len(err), longest)]
	err = uuids.ReplaceAllString(err, "…")
	err = quoted.ReplaceAllString(err, "$1“…”")
	err = names.ReplaceAllStringFunc(err, unnumbered)
	return dotted.ReplaceAllString(err, "…")
}

// unnumbered replaces what differs in a name: words with hyphens or underscores between them, and the separator before them.
func unnumbered(name string) string {
	var b strings.Builder
	last := 0
	for _, at := range words.FindAllStringIndex(name, -1) {
		before, word := name[last:at[0]], name[at[0]:at[1]]
		b.WriteString(before)
		last = at[1]
		switch {
		case isID(word, before):
			b.WriteString("…")
			return b.String() // the rest belongs to the id
		case hex.MatchString(word) && digits.MatchString(word) || amount.MatchString(word):
			b.WriteString("…")
		default:
			b.WriteString(digits.ReplaceAllString(word, "…"))
		}
	}
	return b.String()
}

// isID reports whether a word is an id, or begins one. A separator before it, as in "cus_NffrFeUfNV2Hib", makes that more
// likely.
func isID(word, before string) bool {
	switch n := len(word); {
	case !digits.MatchString(word):
		return before == "_" && n >= 12 && uneven.MatchString(word)
	case amount.MatchString(word):
		return false
	case hex.MatchString(word):
		return n >= 6
	case between.MatchString(word):
		return n >= 12 || before != "" && n >= 8
	default:
		return mixed.MatchString(word)
	}
}
