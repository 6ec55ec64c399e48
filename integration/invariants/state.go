package invariants

import (
	"slices"
	"strings"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
)

// A Wrong is called for each violation.
type Wrong func(format string, args ...any)

// of returns a function that reports violations of an invariant.
func (w Wrong) of(i Invariant) Wrong {
	return func(format string, args ...any) { w(i.Name+": "+format, args...) }
}

// Kinds are the kinds of the changed keys; nil: any may have changed.
type Kinds map[string]bool

// State checks a queue in which keys of some kinds have changed.
func State(l *lane.Lane, kinds Kinds, wrong Wrong) {
	changed := func(some ...string) bool {
		return kinds == nil || slices.ContainsFunc(some, func(k string) bool { return kinds[k] })
	}
	if changed("process", "working", "workers", "suspects") {
		owners(l, wrong)
	}
	if changed("keyed", "schedule", "contents", "entries", "process", "added") {
		entries(l, wrong.of(OneRun))
	}
	if changed("added", "keyed", "entries", "working", "process") {
		added(l, wrong.of(OneRun))
	}
	if changed("working", "holders") {
		holders(l, wrong.of(Cancels))
	}
	if changed("process", "stopping") {
		stopping(l, wrong.of(Cancels))
	}
}

// owners: each process has one owner: a member, or a worker whose tasks are being returned.
func owners(l *lane.Lane, wrong Wrong) {
	n := 0
	for w, all := range l.Working {
		n += len(all)
		_, member := l.Workers[w]
		mark, suspect := l.Suspects[w]
		if !member && (!suspect || mark > 0) {
			wrong.of(Members)("worker %s holds %d processes of %s, but isn't a member", w, len(all), l.Queue)
		}
		for id := range all {
			if _, ok := l.Process[id]; !ok {
				wrong.of(OneOwner)("worker %s holds process %s of %s, which has no list", w, id, l.Queue)
			}
		}
	}
	if n != len(l.Process) {
		wrong.of(OneOwner)("%s has %d processes, but workers hold %d", l.Queue, len(l.Process), n)
	}
}

// entries: at most one process of each entry runs, and schedule, contents and keyed agree.
func entries(l *lane.Lane, wrong Wrong) {
	runs := map[string]string{}
	for id, e := range l.Entries {
		if other, twice := runs[e]; twice {
			wrong("processes %s and %s of %s run the same entry %s", id, other, l.Queue, e)
		}
		runs[e] = id
		if l.AddedName(id) == "" && l.Entry[e]["process"] != id {
			wrong("process %s of %s runs the entry %s, which names the process %q", id, l.Queue, e, l.Entry[e]["process"])
		}
		if _, ok := l.Process[id]; !ok {
			wrong("process %s of %s runs the entry %s, but has no list", id, l.Queue, e)
		}
	}
	waiting, planned, apart := 0, 0, apart(l)
	for e, fields := range l.Entry {
		if apart[e] {
			continue // it waits in the stream
		}
		payload, waits := fields["payload"]
		process, run := fields["process"]
		_, inSchedule := l.Schedule[e]
		if waits {
			waiting++
		}
		if waits && !run {
			planned++
		}
		switch {
		case run && runs[e] != process:
			wrong("entry %s of %s names the process %s, which doesn't run it", e, l.Queue, process)
		case inSchedule != (waits && !run):
			wrong("entry %s of %s: in schedule: %v, waiting: %v, running: %v", e, l.Queue, inSchedule, waits, run)
		case waits:
			if _, ok := l.Contents[l.Name(e)+":"+e]; !ok {
				wrong("entry %s of %s waits with the payload %s, but isn't in contents", e, l.Queue, payload)
			}
		}
	}
	if waiting != len(l.Contents) || planned != len(l.Schedule) {
		wrong("%s has %d waiting entries, but %d in contents; %d unblocked, but %d in schedule", l.Queue, waiting, len(l.Contents), planned, len(l.Schedule))
	}
}

// apart returns the entries that only store the payload of a task in the stream.
func apart(l *lane.Lane) map[string]bool {
	all := map[string]bool{}
	for _, w := range l.Waiters() {
		if w.Apart {
			all[w.Entry] = true
		}
	}
	return all
}

// added: an added task waits in the stream, or runs, or has an entry in the schedule; the two fields of a
// running one name each other.
func added(l *lane.Lane, wrong Wrong) {
	runs := map[string]string{}
	for id, e := range l.Entries {
		runs[e] = id
		if name := l.AddedName(id); name != "" && l.Runners()[name] != id+":"+l.Owner[id] {
			wrong("process %s of %s, held by %s, runs the added task %s, which names %q", id, l.Queue, l.Owner[id], name, l.Runners()[name])
		}
	}
	for name, runner := range l.Runners() {
		if id, _, _ := strings.Cut(runner, ":"); l.AddedName(id) != name {
			wrong("added task %s of %s names the process %s, which runs %q", name, l.Queue, id, l.AddedName(id))
		}
	}
	for _, w := range l.Waiters() {
		fields, there := l.Entry[w.Entry]
		_, payload := fields["payload"]
		_, due := fields["due"]
		switch {
		case w.Entry == "":
		case runs[w.Entry] != "":
			wrong("entry %s of %s waits in the stream, but process %s runs it", w.Entry, l.Queue, runs[w.Entry])
		case w.Apart && (!payload || due):
			wrong("entry %s of %s waits in the stream, but its hash doesn't have just the payload: %v", w.Entry, l.Queue, fields)
		case !w.Apart && there:
			wrong("entry %s of %s waits in the stream, but also has a hash", w.Entry, l.Queue)
		}
	}
}

// holders: exactly the workers that hold processes are in holders.
func holders(l *lane.Lane, wrong Wrong) {
	for w := range l.Working {
		if _, ok := l.Holders[w]; !ok {
			wrong("worker %s holds processes of %s, but isn't in holders", w, l.Queue)
		}
	}
	for w := range l.Holders {
		if len(l.Working[w]) == 0 {
			wrong("worker %s is in holders of %s, but holds nothing", w, l.Queue)
		}
	}
}

// stopping: the processes in it run.
func stopping(l *lane.Lane, wrong Wrong) {
	if len(l.Stopping) == 0 {
		return
	}
	due := map[string]bool{}
	for id := range l.Process {
		for _, name := range l.Names(id) {
			due[spec.StoppingAs(name, l.TokenOf(id), id)] = true
		}
	}
	for member := range l.Stopping {
		if !due[member] {
			wrong("stopping of %s has %s, which doesn't run", l.Queue, member)
		}
	}
}

// Tokens checks that tokens rise: each started process has one above all earlier ones. Began has the processes
// that a step started, in the order of their tokens.
func Tokens(was, is *lane.Lane, began []string, wrong Wrong) {
	if is.Token < was.Token {
		wrong.of(Fenced)("the token of %s falls from %d to %d", is.Queue, was.Token, is.Token)
	}
	for _, id := range began {
		token, last := is.TokenOf(id), max(is.Given, was.Token)
		if token <= last {
			wrong.of(Fenced)("%s of %s starts with token %d, but %d was issued before", is.Process[id], is.Queue, token, last)
		}
		is.Given = max(token, is.Given)
	}
}

// Canceled checks that no process covered by an ended cancel still runs, except for excused ones.
func Canceled(was, is *lane.Lane, excused func(process string) bool, wrong Wrong) {
	for name, token := range was.Canceled {
		if _, still := is.Canceled[name]; still {
			continue
		}
		for id := range is.Process {
			if is.TokenOf(id) <= token && !excused(id) && slices.Contains(is.Names(id), name) {
				wrong.of(Cancels)("the cancel of %s of %s has ended, but process %s still runs", is.Process[id], is.Queue, id)
			}
		}
	}
}
