package doctor

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"syscall"

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

// nextStep returns what to do if a server isn't reached; "" if that isn't known.
func nextStep(err error) string {
	of, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok || of.Addr == nil:
	case errors.Is(of, syscall.ECONNREFUSED):
		return "Nothing listens at " + of.Addr.String() + ": start Redis."
	case of.Timeout():
		if of.Op == "dial" {
			return of.Addr.String() + " can't be reached: look at the network and the firewall; Redis may run."
		}
		return of.Addr.String() + " doesn't answer: Redis hangs, or the network drops packets. Look at its process, then at the network."
	}
	return ""
}
