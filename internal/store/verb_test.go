package store

import (
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// without returns a call that leaves the last argument out, as producers in other languages
// may.
func (v *Verb) without(last string, q keys.Queue, given ...any) redisconn.Call {
	if v.args[len(v.args)-1] != last {
		panic(v.Name + " doesn't end with " + last)
	}
	all := v.line(q, 0, append(given, last, ""))
	return v.script.CallOf(all[:len(all)-1])
}
