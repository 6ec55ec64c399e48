// Package rules has the invariants of a queue between any two requests, for the checks in simulation, chaos and
// random tests. The callers decide what a request may change, since they know who has sent what.
package rules

import (
	"slices"
	"strings"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
)

// A Wrong receives the violations.
type Wrong func(format string, args ...any)

// Kinds are those of the changed keys; nil: any may have changed.
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
		entries(l, wrong)
	}
	if changed("added", "keyed", "entries", "working", "process") {
		added(l, wrong)
	}
	if changed("queues", "process", "keyed", "unique", "gaps") && !l.Failed {
		locks(l, wrong)
	}
	if changed("working", "holders") {
		holders(l, wrong)
	}
	if changed("process", "stopping") {
		stopping(l, wrong)
	}
}

// owners: each process has one, which is a member or is being returned.
func owners(l *lane.Lane, wrong Wrong) {
	n := 0
	for w, all := range l.Working {
		n += len(all)
		_, member := l.Workers[w]
		mark, suspect := l.Suspects[w]
		if !member && (!suspect || mark > 0) {
			wrong("%s holds %d processes of %s, and is no member", w, len(all), l.Queue)
		}
		for id := range all {
			if _, ok := l.Process[id]; !ok {
				wrong("%s holds process %s of %s, which has no task", w, id, l.Queue)
			}
		}
	}
	if n != len(l.Process) {
		wrong("%d processes of %s have %d owners", len(l.Process), l.Queue, n)
	}
}

// entries: at most one process of each runs, and the three keys about what waits agree.
func entries(l *lane.Lane, wrong Wrong) {
	runs := map[string]string{}
	for id, e := range l.Entries {
		if other, twice := runs[e]; twice {
			wrong("processes %s and %s of %s both run %s", id, other, l.Queue, e)
		}
		runs[e] = id
		if l.AddedName(id) == "" && l.Entry[e]["process"] != id {
			wrong("process %s of %s runs %s, which says it is %q", id, l.Queue, e, l.Entry[e]["process"])
		}
		if _, ok := l.Process[id]; !ok {
			wrong("process %s of %s runs %s, and there is no such process", id, l.Queue, e)
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
			wrong("%s of %s says that %s runs it, which does not", e, l.Queue, process)
		case inSchedule != (waits && !run):
			wrong("%s of %s: in the schedule: %v, and it waits: %v, and runs: %v", e, l.Queue, inSchedule, waits, run)
		case waits:
			if _, ok := l.Contents[l.Name(e)+":"+e]; !ok {
				wrong("%s of %s waits with %s, and is not in contents", e, l.Queue, payload)
			}
		}
	}
	if waiting != len(l.Contents) || planned != len(l.Schedule) {
		wrong("%s has %d entries that wait, %d contents; %d planned, %d in the schedule", l.Queue, waiting, len(l.Contents), planned, len(l.Schedule))
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
// fields of one that runs name each other.
func added(l *lane.Lane, wrong Wrong) {
	runs := map[string]string{}
	for id, e := range l.Entries {
		runs[e] = id
		if name := l.AddedName(id); name != "" && l.Runners()[name] != id+":"+l.Owner[id] {
			wrong("process %s of %s, held by %s, runs %s, which says it is %q", id, l.Queue, l.Owner[id], name, l.Runners()[name])
		}
	}
	for name, runner := range l.Runners() {
		if id, _, _ := strings.Cut(runner, ":"); l.AddedName(id) != name {
			wrong("%s of %s says that %s runs it, which runs %q", name, l.Queue, id, l.AddedName(id))
		}
	}
	for _, w := range l.Waiters() {
		fields, there := l.Entry[w.Entry]
		_, payload := fields["payload"]
		_, due := fields["due"]
		switch {
		case w.Entry == "":
		case runs[w.Entry] != "":
			wrong("%s of %s waits in the stream, and %s runs it", w.Entry, l.Queue, runs[w.Entry])
		case w.Apart && (!payload || due):
			wrong("%s of %s waits in the stream, and its payload is not where it should be: %v", w.Entry, l.Queue, fields)
		case !w.Apart && there:
			wrong("%s of %s waits in the stream, and has an entry", w.Entry, l.Queue)
		}
	}
}

// locks: a lock is on a task that waits or runs, and points to its place.
func locks(l *lane.Lane, wrong Wrong) {
	if len(l.Unique) == 0 && len(l.Gaps) > 0 {
		wrong("%d gaps of %s are left, which has no locks", len(l.Gaps), l.Queue)
	}
	for d, where := range l.Unique {
		if d == "offset" {
			continue
		}
		kind, of, _ := strings.Cut(where, ":")
		there := ""
		switch kind {
		case "w":
			there = l.At(where[2:])
		case "p":
			there = l.Process[of]
		case "e":
			there = l.Entry[of]["payload"]
		}
		if lane.Digest(there) != d {
			wrong("a lock of %s is left at %s, where %q is", l.Queue, where, there)
		}
	}
}

// holders: the workers that hold something, and no others, have a mark for cancels.
func holders(l *lane.Lane, wrong Wrong) {
	for w := range l.Working {
		if _, ok := l.Holders[w]; !ok {
			wrong("%s, which holds something of %s, is unknown to cancels", w, l.Queue)
		}
	}
	for w := range l.Holders {
		if len(l.Working[w]) == 0 {
			wrong("cancels of %s wait for %s, which holds nothing", l.Queue, w)
		}
	}
}

// stopping: its processes run.
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
			wrong("%s of %s is left to stop, which does not run", member, l.Queue)
		}
	}
}

// Tokens rise: a started process has one above all those given out before. Began has the processes of a step,
// by their tokens.
func Tokens(was, is *lane.Lane, began []string, wrong Wrong) {
	if is.Token < was.Token {
		wrong("the token of %s goes back from %d to %d", is.Queue, was.Token, is.Token)
	}
	for _, id := range began {
		token, last := is.TokenOf(id), max(is.Given, was.Token)
		if token <= last {
			wrong("%s of %s starts with token %d, and %d was given before", is.Process[id], is.Queue, token, last)
		}
		is.Given = max(token, is.Given)
	}
}

// Canceled checks an ended cancel: nothing that it covers runs anymore, except for what is excused.
func Canceled(was, is *lane.Lane, excused func(process string) bool, wrong Wrong) {
	for name, token := range was.Canceled {
		if _, still := is.Canceled[name]; still {
			continue
		}
		for id := range is.Process {
			if is.TokenOf(id) <= token && !excused(id) && slices.Contains(is.Names(id), name) {
				wrong("the cancel of %s of %s is over, and %s runs", is.Process[id], is.Queue, id)
			}
		}
	}
}
