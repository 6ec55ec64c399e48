package store

import (
	"strings"

	"github.com/worqr/worqr/internal/invariants"
)

// An About is what Redis says about the name of a task.
type About struct {
	Name   string
	Record Record // without the payload
	Behind *About // the task that waits behind the running one: its record, and At; nil if there's none

	Before   int   // names before it, in ready, schedule or risky
	Returned bool  // it's ready, and has been returned
	At       int64 // ms; when it may start, if it's in the schedule
	Asserted int64 // ms; until when its schedule is asserted; 0: it has none

	Attempt string // that runs; "": none
	Token   int64  // of the attempt, if its worker holds it; negative: it must stop
	Retries int
	Crashes int
	Error   string

	facts invariants.Name
}

// IsRisky reports whether the task waits to run alone.
func (a *About) IsRisky() bool { return a.facts.Risky }

// about decodes what about_name says.
func (d *decoder) about(inFailed bool) About {
	a := About{Name: d.string()}
	f := &a.facts
	f.Name = a.Name
	var record, run, behind string
	if record, f.HasRecord = d.maybe(); f.HasRecord {
		a.Record = ReadRecord([]byte(record), inFailed)
		f.BadRecord = a.Record.Damaged
	}
	if run, f.HasRun = d.maybe(); f.HasRun {
		of := readRun([]byte(run))
		a.Attempt, a.Retries, a.Crashes, a.Error = of.attempt, of.retries, of.crashes, of.failure
		f.BadRun, f.Attempt = strings.Count(run, ":") < 3, of.attempt
	}
	if behind, f.HasBehind = d.maybe(); f.HasBehind {
		a.Behind, f.BadBehind = readBehind(behind)
	}
	var ranks [5]int64
	var there [5]bool
	ranks[0], there[0] = d.maybeInt()
	place, _ := d.maybeInt()
	ranks[1], there[1] = d.maybeInt()
	a.At, _ = d.maybeInt()
	for i := 2; i < len(ranks); i++ {
		ranks[i], there[i] = d.maybeInt()
	}
	f.Ready, f.Scheduled, f.Risky, f.Aside, f.Copy = there[0], there[1], there[2], there[3], there[4]
	a.Before, a.Returned = int(max(ranks[0], ranks[1], ranks[2])), place < 0
	a.Asserted, _ = d.maybeInt()
	a.Token, f.Held = d.maybeInt()
	f.Listed = d.int() == 1
	return a
}

// readBehind reads "time:rule:keep:counts:record".
func readBehind(text string) (a *About, damaged bool) {
	parts := strings.SplitN(text, ":", 5)
	if len(parts) < 5 {
		return nil, true
	}
	a = &About{At: numberIn(parts[0]), Record: ReadRecord([]byte(parts[4]), false)}
	return a, a.Record.Damaged
}

// queue decodes what about_queue says.
func (d *decoder) queue() invariants.Queue {
	in := d.list()
	q := invariants.Queue{
		Now: in.int(), Token: in.int(), Fence: in.int(), Place: in.int(), Lease: in.int(), Paused: in.string(),
		Listed: int(in.int()), Ready: int(in.int()), Returned: int(in.int()), Risky: int(in.int()), Due: int(in.int()),
		LastPlace: in.int(), Members: int(in.int()), Alive: int(in.int()), Leaving: int(in.int()), Idle: int(in.int()),
	}
	d.join(in)
	return q
}

// maybe decodes a text that may be missing.
func (d *decoder) maybe() (text string, there bool) {
	v := d.next()
	if v == nil {
		return "", false
	}
	return string(as[[]byte](v, &d.err, "a string")), true
}

// maybeInt decodes a number that may be missing, or be stored as text.
func (d *decoder) maybeInt() (n int64, there bool) {
	switch v := d.next().(type) {
	case nil:
		return 0, false
	case int64:
		return v, true
	default:
		return numberIn(string(as[[]byte](v, &d.err, "a number"))), true
	}
}
