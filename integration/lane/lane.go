// Package lane is a typed view of the keys of one queue, for suites that check invariants between any two requests.
package lane

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/worqr/worqr/integration/spec"
)

// The values of keys: a string, a []string whose last element is the front, a Hash, a ZSet, or nil.
type (
	Hash map[string]string
	ZSet map[string]int64 // all scores are integers
)

// A Lane is what Redis holds of one queue, or of one failed queue.
type Lane struct {
	Queue  string
	Failed bool

	Waiting                               []string // raw tasks, the front last
	Tasks, Next, Runs                     Hash     // by name
	Ready, Schedule, Risky, Aside, Copies ZSet
	Process                               map[string]string // attempt → payload or name
	Working                               map[string]ZSet   // worker → attempt → token
	Workers, Suspects, Leaving, Idle      ZSet
	Rounds, State, Crashes                Hash
	Canceled                              map[string]int64 // digest → token
	Recurring                             ZSet
	Recurrence                            Hash

	Owner map[string]string // attempt → worker
	Given int64             // the highest token of any attempt
}

// New returns the view of an empty queue.
func New(queue string, failed bool) *Lane {
	return &Lane{Queue: queue, Failed: failed, Process: map[string]string{}, Working: map[string]ZSet{}, Owner: map[string]string{}, Canceled: map[string]int64{}}
}

// Place parses the name of a key: its queue, kind, and what it is about. It's false for keys of no queue. The prefix
// ends in a colon.
func Place(prefix, key string) (queue string, failed bool, kind, of string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", false, "", "", false
	}
	rest, failed = strings.CutPrefix(rest, "failed:")
	kind, rest, ok = strings.Cut(rest, ":{")
	if !ok {
		return "", false, "", "", false
	}
	queue, of, ok = strings.Cut(rest, "}")
	return queue, failed, kind, strings.TrimPrefix(of, ":"), ok
}

// Value converts a value from a client or a store: scores are floats there.
func Value(held any) any {
	switch v := held.(type) {
	case map[string]string:
		return Hash(v)
	case map[string]float64:
		z := make(ZSet, len(v))
		for name, score := range v {
			z[name] = int64(score)
		}
		return z
	}
	return held
}

// Set sets the value of a key.
func (l *Lane) Set(kind, of string, v any) {
	switch kind {
	case "queues":
		l.Waiting, _ = v.([]string)
	case "process":
		delete(l.Process, of)
		if all, _ := v.([]string); len(all) == 1 {
			l.Process[of] = all[0]
		}
	case "working":
		for id := range l.Working[of] {
			delete(l.Owner, id)
		}
		delete(l.Working, of)
		if held, _ := v.(ZSet); len(held) > 0 {
			l.Working[of] = held
		}
		for id := range l.Working[of] {
			l.Owner[id] = of
		}
	case "canceled":
		delete(l.Canceled, of)
		if text, is := v.(string); is {
			l.Canceled[of] = Number(text)
		}
	default:
		switch one := l.one(kind).(type) {
		case *ZSet:
			*one, _ = v.(ZSet)
		case *Hash:
			*one, _ = v.(Hash)
		}
	}
}

// Get returns the value last set for a key.
func (l *Lane) Get(kind, of string) any {
	switch kind {
	case "queues":
		return l.Waiting
	case "process":
		if p, ok := l.Process[of]; ok {
			return []string{p}
		}
		return []string(nil)
	case "working":
		return l.Working[of]
	case "canceled":
		return l.Canceled[of]
	}
	switch one := l.one(kind).(type) {
	case *ZSet:
		return *one
	case *Hash:
		return *one
	}
	return nil
}

// one returns the only sorted set or hash of a kind, or nil.
func (l *Lane) one(kind string) any {
	return map[string]any{
		"tasks": &l.Tasks, "next": &l.Next, "runs": &l.Runs, "ready": &l.Ready, "schedule": &l.Schedule, "risky": &l.Risky, "aside": &l.Aside,
		"copies": &l.Copies, "workers": &l.Workers, "suspects": &l.Suspects, "leaving": &l.Leaving, "idle": &l.Idle, "rounds": &l.Rounds,
		"state": &l.State, "crashes": &l.Crashes, "recurring": &l.Recurring, "recurrence": &l.Recurrence,
	}[kind]
}

// Copy returns a copy, which later calls of Set don't change.
func (l *Lane) Copy() *Lane {
	c := *l
	c.Process, c.Working, c.Owner, c.Canceled = maps.Clone(l.Process), maps.Clone(l.Working), maps.Clone(l.Owner), maps.Clone(l.Canceled)
	return &c
}

// Moved yields the payloads of tasks that are in one value and not in the other, once for each place: 1 for those added,
// -1 for those removed. A named task is where its record is, whether it waits or runs.
func Moved(kind, of string, was, is any, yield func(payload string, n int)) {
	switch kind {
	case "process":
		if IsNamed(of) {
			return
		}
		fallthrough
	case "queues":
		old, _ := was.([]string)
		now, _ := is.([]string)
		old, now = apart(old, now)
		for _, p := range old {
			yield(p, -1)
		}
		for _, p := range now {
			yield(p, 1)
		}
	case "tasks", "next":
		old, _ := was.(Hash)
		now, _ := is.(Hash)
		for name, text := range old {
			if now[name] != text {
				yield(payloadIn(kind, text), -1)
			}
		}
		for name, text := range now {
			if was, there := old[name]; !there || was != text {
				yield(payloadIn(kind, text), 1)
			}
		}
	}
}

func payloadIn(kind, text string) string {
	if kind == "next" {
		text = spec.ReadBehind(text).Record
	}
	return spec.ReadRecord(text).Payload
}

// apart returns two lists without their common beginning and end.
func apart(a, b []string) ([]string, []string) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// IsNamed reports whether an attempt runs a named task.
func IsNamed(attempt string) bool { return strings.HasSuffix(attempt, "n") }

// Name returns the name of what an attempt runs; "" for a raw task.
func (l *Lane) Name(attempt string) string {
	if IsNamed(attempt) {
		return l.Process[attempt]
	}
	return ""
}

// Record returns the record of a named task that waits or runs.
func (l *Lane) Record(name string) spec.Record { return spec.ReadRecord(l.Tasks[name]) }

// Run returns what is known of a name that runs, or has failed before.
func (l *Lane) Run(name string) spec.Run { return spec.ReadRun(l.Runs[name]) }

// Behind returns the record of what waits behind the running task of a name, and whether there is one.
func (l *Lane) Behind(name string) (spec.Record, bool) {
	text, is := l.Next[name]
	if !is {
		return spec.Record{}, false
	}
	return spec.ReadRecord(spec.ReadBehind(text).Record), true
}

// Payload returns the payload of what an attempt runs.
func (l *Lane) Payload(attempt string) string {
	if name := l.Name(attempt); name != "" {
		return l.Record(name).Payload
	}
	return l.Process[attempt]
}

// Digest returns the digest by which a cancel of a payload covers an attempt; "" if none does, since the task has a key.
func (l *Lane) Digest(attempt string) string {
	switch name := l.Name(attempt); {
	case name == "":
		return spec.Digest(l.Process[attempt])
	case name[0] == 'k':
		return ""
	default:
		return strings.Split(name, ":")[1]
	}
}

// Token returns the token of an attempt; 0 if nobody has it.
func (l *Lane) Token(attempt string) int64 {
	token := l.Working[l.Owner[attempt]][attempt]
	return max(token, -token)
}

// Stops reports whether an attempt must stop.
func (l *Lane) Stops(attempt string) bool {
	token := l.Working[l.Owner[attempt]][attempt]
	canceled, is := l.Canceled[l.Digest(attempt)]
	return token < 0 || is && token <= canceled
}

// Number returns a number of the queue's state.
func (l *Lane) Number(field string) int64 { return Number(l.State[field]) }

// Paused reports whether the queue is paused.
func (l *Lane) Paused() bool { _, is := l.State["paused"]; return is }

// Since returns the attempts that began and ended since was, by their tokens.
func (l *Lane) Since(was *Lane) (began, ended []string) {
	for id := range l.Process {
		if _, ok := was.Process[id]; !ok {
			began = append(began, id)
		}
	}
	for id := range was.Process {
		if _, ok := l.Process[id]; !ok {
			ended = append(ended, id)
		}
	}
	slices.SortFunc(began, func(a, b string) int { return cmp.Compare(l.Token(a), l.Token(b)) })
	slices.SortFunc(ended, func(a, b string) int { return cmp.Compare(was.Token(a), was.Token(b)) })
	return began, ended
}

// Number reads a number that a script has written.
func Number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
