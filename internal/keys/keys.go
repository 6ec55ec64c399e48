// Package keys names every key and channel that worqr uses in Redis. No other package in the module
// contains one literally.
//
// Table lists them. With the prefix "worqr" and {q} standing for the queue's name in
// braces, so that all keys of a queue share one Redis Cluster slot, the keys are
// worqr:queues:{q}, worqr:process:{q}:<attempt> and so on.
//
// The failed queue of q is a queue of the same kind: its keys begin with "worqr:failed" instead of
// "worqr". So no prefix may end in ":failed". Nor may one have a part ":worker", as "a:worker:b" does: its keys
// would look like registrations.
package keys

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// DefaultPrefix is the namespace used when none is chosen.
const DefaultPrefix = "worqr"

// MaxName is the longest allowed queue name or prefix, in bytes.
const MaxName = 255

// CheckName reports why name can't be the name of a queue.
func CheckName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if !utf8.ValidString(name) { // registrations and events are JSON
		return fmt.Errorf("the name %q isn't valid UTF-8", name)
	}
	return check(name)
}

// CheckPrefix reports why prefix can't be a namespace.
func CheckPrefix(prefix string) error {
	if strings.HasSuffix(prefix, failedSuffix) {
		return fmt.Errorf("the prefix %q ends in %s, which is reserved for failed tasks", prefix, failedSuffix)
	}
	if before, _, ok := strings.Cut(prefix+":", ":worker:"); ok {
		return fmt.Errorf("the prefix %q contains :worker; the prefix %q keeps its registrations there", prefix, before)
	}
	return check(prefix)
}

const failedSuffix = ":failed"

func check(name string) error {
	if len(name) > MaxName {
		return fmt.Errorf("the name has %d bytes; the limit is %d", len(name), MaxName)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c == '{' || c == '}':
			return fmt.Errorf("the name %q contains a brace", name)
		case c == ' ':
			return fmt.Errorf("the name %q contains a space", name)
		case c < ' ' || c == 0x7f:
			return fmt.Errorf("the name %q contains a control byte", name)
		}
	}
	return nil
}

// A Space is the namespace of one fleet.
type Space struct {
	prefix    string
	clustered bool
}

// InCluster returns the namespace of a fleet whose keys are in a Redis Cluster.
func (s Space) InCluster() Space { return Space{s.prefix, true} }

// Scattered reports whether the keys are on several nodes. If so, a script can't use the keys of
// two queues, or of a queue and of the fleet.
func (s Space) Scattered() bool { return s.clustered }

// NewSpace returns the namespace of prefix, which must be valid for CheckPrefix.
func NewSpace(prefix string) Space {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return Space{prefix: prefix}
}

// The keys of the fleet, one method for each row of Table.

func (s Space) Registry() string        { return s.prefix + ":registry" }
func (s Space) Workers() string         { return s.prefix + ":workers" }
func (s Space) Protocol() string        { return s.prefix + ":protocol" }
func (s Space) Notes() string           { return s.prefix + ":notes" }
func (s Space) Versions() string        { return s.prefix + ":versions" }
func (s Space) Worker(id string) string { return s.prefix + ":worker:" + id }

// Queue returns the names of one queue, which must be valid for CheckName.
func (s Space) Queue(name string) Queue { return Queue{s.prefix, name, s.clustered} }

// A Queue names the keys and channels of one queue.
type Queue struct {
	prefix, name string
	clustered    bool
}

// Scattered reports whether the keys of other queues may be on other nodes.
func (q Queue) Scattered() bool { return q.clustered }

// None returns a key of the queue that never exists: that of the empty nonce. Every user that may
// enqueue may access it. Every script declares it: while a slot moves to another node, it makes Redis
// reject a script before it runs. Without such a key, the script may run and be aborted after its first
// write, at a key that it doesn't declare and that isn't there.
func None(q Queue) string { return q.Once("") }

// NoneBeside returns a key that never exists, in the slot of a key that belongs to no queue.
func NoneBeside(s Space, key string) string { return s.Queue(key).Once("") }

// Ends returns the prefix and the end of the queue's keys, for scripts that write into a second queue.
func (q Queue) Ends() (prefix, tail string) { return q.prefix, "{" + q.name + "}" }

// Failed returns the names of the failed queue of q.
func (q Queue) Failed() Queue { return Queue{q.prefix + failedSuffix, q.name, q.clustered} }

// IsFailed reports whether q is a failed queue.
func (q Queue) IsFailed() bool { return strings.HasSuffix(q.prefix, failedSuffix) }

func (q Queue) key(kind string) string { return q.prefix + ":" + kind + ":{" + q.name + "}" }

// The keys of the queue, one method for each row of Table, which describes their contents.

func (q Queue) Waiting() string                 { return q.key("queues") }
func (q Queue) Tasks() string                   { return q.key("tasks") }
func (q Queue) Ready() string                   { return q.key("ready") }
func (q Queue) Schedule() string                { return q.key("schedule") }
func (q Queue) Risky() string                   { return q.key("risky") }
func (q Queue) Aside() string                   { return q.key("aside") }
func (q Queue) Next() string                    { return q.key("next") }
func (q Queue) Runs() string                    { return q.key("runs") }
func (q Queue) Copies() string                  { return q.key("copies") }
func (q Queue) Process(id string) string        { return q.key("process") + ":" + id }
func (q Queue) Working(worker string) string    { return q.key("working") + ":" + worker }
func (q Queue) Workers() string                 { return q.key("workers") }
func (q Queue) Suspects() string                { return q.key("suspects") }
func (q Queue) Leaving() string                 { return q.key("leaving") }
func (q Queue) Idle() string                    { return q.key("idle") }
func (q Queue) Rounds() string                  { return q.key("rounds") }
func (q Queue) State() string                   { return q.key("state") }
func (q Queue) Crashes() string                 { return q.key("crashes") }
func (q Queue) CanceledBy(digest string) string { return q.key("canceled") + ":" + digest }
func (q Queue) Ages() string                    { return q.key("ages") }
func (q Queue) Recurring() string               { return q.key("recurring") }
func (q Queue) Recurrence() string              { return q.key("recurrence") }
func (q Queue) Once(nonce string) string        { return q.key("once") + ":" + nonce }
func (q Queue) Result(name string) string       { return q.key("result") + ":" + name }
func (q Queue) History(time string) string      { return q.key("history") + ":" + time }

// A Kind is what a channel carries.
type Kind string

// The kinds of channels. Their messages: KindWork a count, from producers in other languages;
// KindEnqueue a count, from this library; KindDone a JSON object with workerId, task and result;
// KindCancel a payload, or its digest and length; KindDelete nothing.
const (
	KindWork    Kind = "work"
	KindEnqueue Kind = "enqueue"
	KindDone    Kind = "done"
	KindCancel  Kind = "cancel"
	KindDelete  Kind = "delete"
)

// Channel returns the channel of one kind of event.
func (q Queue) Channel(k Kind) string { return q.prefix + "_{" + q.name + "}_" + string(k) }

// Wake returns the channel that wakes a worker.
func (q Queue) Wake(worker string) string { return q.Channel("wake") + ":" + worker }

// End returns the channel for the end of a named task. It contains the name's digest, since a key may
// be long, and channels are logged.
func (q Queue) End(name string) string {
	return q.Channel("end") + ":" + fmt.Sprintf("%x", sha1.Sum([]byte(name)))
}

// Pattern returns a pattern for the channels of one kind of all queues.
func (s Space) Pattern(k Kind) string { return globEscape.Replace(s.prefix) + "_{*}_" + string(k) }

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`)

// ParseChannel is the inverse of Channel and Wake: it returns the queue's name and the kind. For a
// wake channel the kind is "wake". Names contain no braces, so a channel has only one reading.
func (s Space) ParseChannel(channel string) (queue string, k Kind, ok bool) {
	rest, ok := strings.CutPrefix(channel, s.prefix+"_{")
	if !ok {
		return "", "", false
	}
	queue, rest, ok = strings.Cut(rest, "}_")
	if !ok {
		return "", "", false
	}
	kind, _, _ := strings.Cut(rest, ":")
	return queue, Kind(kind), true
}
