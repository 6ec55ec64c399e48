package keys

import "strings"

// A Type is a type of value, as Redis names it.
type Type string

// A Key is a parsed key.
type Key struct {
	Kind  string // "queues", "process" …; "registry", "protocol", "workers" and "worker" if it belongs to no queue
	Type  Type   // that its value must have
	Queue *Queue // nil if it belongs to no queue
	Name  string // of the queue
	Part  string // the rest: an attempt, a worker, a name …
}

// Parse is the inverse of the names: it parses a key of the namespace. Names contain no braces, so
// a key has only one reading.
func (s Space) Parse(key string) (k Key, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix+":")
	if !ok {
		return Key{}, false
	}
	kind, id, many := strings.Cut(rest, ":")
	if r, ok := bySpot[spot{true, many, kind}]; ok {
		return Key{Kind: kind, Type: r.Type, Part: id}, !many || IsWorker(id)
	}
	rest, failed := strings.CutPrefix(rest, failedSuffix[1:]+":")
	kind, rest, _ = strings.Cut(rest, ":{")
	name, part, ok := strings.Cut(rest, "}")
	if !ok || CheckName(name) != nil {
		return Key{}, false
	}
	q := s.Queue(name)
	if failed {
		q = q.Failed()
	}
	k = Key{Kind: kind, Queue: &q, Name: name}
	many = part != ""
	if k.Part, ok = strings.CutPrefix(part, ":"); many && !ok {
		return Key{}, false
	}
	r, ok := bySpot[spot{false, many, kind}]
	if ok {
		k.Type = r.Type
	}
	return k, ok
}

// IsWorker reports whether a text may be the id of a worker. Arbitrary text in its place must not
// lead to the keys of a longer prefix.
func IsWorker(id string) bool {
	return len(id) <= maxID && id != "" && check(id) == nil && !strings.Contains(id, ":")
}

const maxID = 64 // bytes; a UUID has 36

// Others reports whether a key that begins with our prefix may belong to a fleet with a longer
// prefix.
func (s Space) Others(key string) bool {
	rest := strings.TrimPrefix(key, s.prefix+":")
	for {
		more, after, ok := strings.Cut(rest, ":")
		if !ok {
			return false
		}
		rest = after
		if more == failedSuffix[1:] && len(rest) > 0 {
			continue // no prefix ends like this
		}
		if _, ok := NewSpace("x").Parse("x:" + rest); ok {
			return true
		}
	}
}

// Keys returns a pattern for every key of the namespace, for SCAN.
func (s Space) Keys() string { return globEscape.Replace(s.prefix) + ":*" }
