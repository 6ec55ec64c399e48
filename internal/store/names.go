package store

import "github.com/worqr/worqr/internal/keys"

// Aliases for packages that name keys.
type (
	Space = keys.Space // the keys of a fleet
	Keys  = keys.Queue // the keys of a queue
	Key   = keys.Key   // one key, parsed
)

// DefaultPrefix is the prefix of a fleet that hasn't chosen one.
const DefaultPrefix = keys.DefaultPrefix

// SpaceOf returns the keys with a prefix.
func SpaceOf(prefix string) Space { return keys.NewSpace(prefix) }

// MaxName is the longest allowed name of a queue, or prefix, in bytes.
const MaxName = keys.MaxName

// CheckName returns why name can't be the name of a queue, or nil.
func CheckName(name string) error { return keys.CheckName(name) }

// CheckPrefix returns why prefix can't be a prefix, or nil.
func CheckPrefix(prefix string) error { return keys.CheckPrefix(prefix) }
