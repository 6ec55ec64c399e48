package invariants

import (
	"slices"
	"strconv"
	"strings"
)

// A Found is a flaw of something.
type Found struct {
	Flaw   Flaw
	Name   string // of the attempt, task, worker or schedule; "" for the queue
	Detail string // for the repair: the times that are wrong, or what a number is raised to
}

// A State is what the keys of a queue say at one moment, or a part of it.
type State struct {
	Queue     Queue
	Names     []Name
	Attempts  []Attempt
	Workers   []Worker
	Schedules []Schedule
}

// Judge returns the flaws of all that a State has, but not those of the queue: see Queue.Judge.
func (s *State) Judge() (all []Found) {
	for i := range s.Names {
		all = append(all, s.Names[i].judge()...)
	}
	for i := range s.Attempts {
		all = append(all, s.Attempts[i].judge()...)
	}
	for i := range s.Workers {
		all = append(all, s.Workers[i].judge(&s.Queue)...)
	}
	for i := range s.Schedules {
		all = append(all, s.Schedules[i].judge(&s.Queue)...)
	}
	return all
}

// A Queue is what the keys say about a queue as a whole. Times are in ms of Redis's time.
type Queue struct {
	Now       int64
	Token     int64 // -1: it can't be read
	Fence     int64
	Place     int64
	Lease     int64  // the longest; 0: unknown
	Paused    string // "ms:who"
	Listed    int    // on the list
	Ready     int
	Returned  int // of those that are ready
	Risky     int
	Due       int   // in the schedule; their time has come
	LastPlace int64 // in use
	Members   int
	Alive     int // members with a lease that may be valid
	Leaving   int
	Idle      int
}

// Waiting returns how many tasks could start.
func (q *Queue) Waiting() int { return q.Listed + q.Ready + q.Risky + q.Due }

// Judge returns the flaws of the queue as a whole.
func (q *Queue) Judge() (all []Found) {
	if q.Token < q.Fence || q.Token < 0 {
		all = append(all, Found{Token, "", digits(q.Fence)})
	}
	if q.Place < q.LastPlace && q.Token >= 0 {
		all = append(all, Found{Place, "", digits(q.LastPlace)})
	}
	return all
}

// A Name is what the keys say about the name of a task.
type Name struct {
	Name                           string
	HasRecord, HasRun, HasBehind   bool // in tasks, runs and next
	Ready, Scheduled, Risky, Aside bool
	Copy                           bool   // it's in copies
	Attempt                        string // that runs; "": none
	Held, Listed                   bool   // its worker has the attempt; it has its list
	BadRecord, BadRun, BadBehind   bool   // they can't be read
}

func (n *Name) judge() (all []Found) {
	add := func(flaw Flaw, is bool) {
		if is {
			all = append(all, Found{Flaw: flaw, Name: n.Name})
		}
	}
	places := 0
	for _, there := range []bool{n.Ready, n.Scheduled, n.Risky, n.Aside, n.Attempt != ""} {
		if there {
			places++
		}
	}
	add(NoRecord, !n.HasRecord && places > 0)
	add(Leftover, !n.HasRecord && places == 0 && (n.HasRun && !n.BadRun || n.Copy))
	add(Nowhere, n.HasRecord && places == 0)
	add(Twice, places > 1)
	add(NoCopy, n.HasRecord && n.Copy != strings.HasPrefix(n.Name, "r:"))
	add(Stuck, n.Attempt != "" && !n.Held && !n.Listed)
	add(Behind, n.HasBehind && n.Attempt == "")
	add(Damaged, n.BadRecord || n.BadRun || n.BadBehind)
	return all
}

// An Attempt is what the keys say about an attempt.
type Attempt struct {
	ID      string
	HasList bool
	Held    bool   // the worker in its id has it
	Holder  string // who has it, if that's known
	Worker  string // in its id
	Named   bool   // by its id
	Name    string // in its list
	Runs    string // the attempt that the name runs
}

func (a *Attempt) judge() []Found {
	flaw := Flaw("")
	switch {
	case a.Holder != "" && a.Holder != a.Worker:
		flaw = Stranger
	case a.HasList && !a.Held:
		flaw = Unowned
	case a.Held && !a.HasList:
		flaw = NoList
	case a.Held && a.Named && a.Runs != a.ID:
		flaw = SecondRun
	default:
		return nil
	}
	return []Found{{Flaw: flaw, Name: a.ID}}
}

// A Worker is what the keys say about a worker.
type Worker struct {
	ID       string
	Deadline string // "": it's no member
	HasRound bool
	Leaving  bool
	Suspect  string // when it may be fenced; "": it's no suspect
	Idle     bool
	Highest  int64 // token that it holds; negative: it holds nothing
}

// Never is the deadline of a lease that doesn't end.
const Never = 1<<53 - 1

func (w *Worker) judge(q *Queue) (all []Found) {
	member := w.Deadline != ""
	deadline, _ := strconv.ParseFloat(w.Deadline, 64)
	far := q.Lease > 0 && deadline > float64(q.Now+q.Lease) && deadline < Never
	switch {
	case w.Highest >= 0 && !member && !w.Leaving:
		all = append(all, Found{Flaw: Stray, Name: w.ID})
	case member && (!w.HasRound || w.Leaving):
		all = append(all, Found{Flaw: HalfMember, Name: w.ID})
	case !member && (w.HasRound || w.Suspect != "" || w.Idle):
		all = append(all, Found{Flaw: Ghost, Name: w.ID})
	}
	if member && (far || deadline < float64(q.Now) && q.Alive == 0) {
		all = append(all, Found{Dead, w.ID, w.Deadline})
	}
	if w.Leaving && q.Alive == 0 {
		all = append(all, Found{Flaw: Unreturned, Name: w.ID})
	}
	if w.Highest > q.Token && q.Token >= 0 {
		all = append(all, Found{Token, w.ID, digits(w.Highest)})
	}
	return all
}

// A Schedule is what the keys say about a schedule. Texts are "" where there's nothing.
type Schedule struct {
	Name   string
	Until  string   // when it's asserted no longer
	Times  []string // the next ones that are known; nil: none are stored
	Passed string   // the time up to which its occurrences have passed
	Prints string
}

// How far ahead the times of a schedule may be, in ms: schedules are asserted for less than longest;
// a clock may be set back by less than setBack without an occurrence that starts again.
const (
	longest = 60_000
	setBack = 3_600_000
)

func (s *Schedule) judge(q *Queue) []Found {
	if s.Until == "" || s.Times == nil || s.Passed == "" || s.Prints == "" {
		return []Found{{Flaw: HalfPlan, Name: s.Name}}
	}
	until, _ := strconv.ParseFloat(s.Until, 64)
	passed, _ := strconv.ParseFloat(s.Passed, 64)
	// One that was taken away has passed, too, but is one of the schedule's times.
	late := passed > float64(q.Now+setBack) && !slices.Contains(s.Times, s.Passed)
	if until > float64(q.Now+longest) || late {
		return []Found{{Ahead, s.Name, s.Until + " " + s.Passed}}
	}
	return nil
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }
