package keys

import "strings"

// A Type is what Redis calls the type of a value.
type Type string

// A Key is a key taken apart.
type Key struct {
	Kind  string // "queues", "process" …; "registry", "protocol", "workers" and "worker" if it is of no queue
	Type  Type   // that its value should have
	Queue *Queue // nil if it is of no queue
	Name  string // of the queue
	Part  string // what follows: a process, a worker, an entry …
}

// Parse is the inverse of the names: it tells what a key of the namespace is.
// Names contain no braces, so there is only one way to read a key.
func (s Space) Parse(key string) (k Key, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix+":")
	if !ok {
		return Key{}, false
	}
	kind, id, many := strings.Cut(rest, ":")
	if r, ok := row(true, many, kind); ok {
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
	r, ok := row(false, many, kind)
	if ok {
		k.Type = r.Type
	}
	return k, ok
}

// IsWorker reports whether a text may be the id of a worker. What others have
// written instead of one must not lead to the keys of a longer prefix.
func IsWorker(id string) bool {
	return len(id) <= maxID && id != "" && check(id) == nil && !strings.Contains(id, ":")
}

const maxID = 64 // bytes; a UUID has 36

// Others reports whether a key that begins with our prefix may belong to a fleet
// with a longer one.
func (s Space) Others(key string) bool {
	rest := strings.TrimPrefix(key, s.prefix+":")
	for {
		more, after, ok := strings.Cut(rest, ":")
		if !ok {
			return false
		}
		rest = after
		if more == failedSuffix[1:] && len(rest) > 0 {
			continue // no prefix ends so
		}
		if _, known := NewSpace("x").Parse("x:" + rest); known {
			return true
		}
	}
}

// Keys is a pattern that matches every key of the namespace, for SCAN.
func (s Space) Keys() string { return globEscape.Replace(s.prefix) + ":*" }
