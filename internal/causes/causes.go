// Package causes determines which errors have the same cause.
package causes

import (
	"regexp"
	"strings"
)

// The parts that differ between errors with the same cause.
var (
	uuids   = regexp.MustCompile(`(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	quoted  = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	numbers = regexp.MustCompile(`(?i)\b(0x)?[0-9a-f]*[0-9][0-9a-f]*|[0-9]+`)
	dotted  = regexp.MustCompile(`…([.:,/-]?…)+`) // addresses, times
)

// longest is how many bytes of an error count.
const longest = 400

// Of returns the first line of an error without the parts that differ between errors with the same cause: ids,
// numbers, addresses, times and quoted text.
func Of(err string) string {
	err, _, _ = strings.Cut(err, "\n")
	err = err[:min(len(err), longest)]
	err = uuids.ReplaceAllString(err, "…")
	err = quoted.ReplaceAllString(err, "“…”")
	err = numbers.ReplaceAllString(err, "…")
	return dotted.ReplaceAllString(err, "…")
}
