package load

import "strings"

// Stays reports whether a key may exist when no worker serves and no task waits.
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
		return isFailed // failed tasks stay
	}
	return false
}
