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
	case "registry", "protocol", "state", "notes":
		return true
	case "once", "canceled", "result", "history":
		return expires
	case "tasks", "ready", "aside", "copies":
		return isFailed // failed tasks stay
	}
	return false
}
