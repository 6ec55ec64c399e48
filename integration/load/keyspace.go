package load

import "strings"

// Stays reports whether a key may be there when nobody serves and nothing waits.
func Stays(prefix, key string, expires bool) bool {
	rest, ok := strings.CutPrefix(key, prefix+":")
	if !ok {
		return false
	}
	failed, isFailed := strings.CutPrefix(rest, "failed:")
	kind, _, _ := strings.Cut(failed, ":")
	switch kind {
	case "registry", "protocol", "token":
		return true
	case "once", "cancel", "result":
		return expires
	case "schedule", "contents", "keyed":
		return isFailed // what has failed stays to be looked at
	}
	return false
}
