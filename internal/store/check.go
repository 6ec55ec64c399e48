package store

import (
	"cmp"
	"context"
	"regexp"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/past"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	check  = verb("check")
	repair = verb("repair")
)

// Examined are the kinds of keys that a check goes through, in order; the first two say who may hold tasks. Others are found by their names: attempts and
// workers that hold some.
var Examined = strings.Fields("workers leaving suspects idle rounds tasks runs next ready schedule risky aside copies recurring recurrence")

// The kinds of what a check is given by name.
const (
	Attempts = "attempts"
	Holders  = "workers"
)

// A Part is what a part of a queue's keys says, at one moment.
type Part struct {
	invariants.State
	About []About // for each of Names
}

// Check reads a part of a queue: the next page of a kind of key, from "0" on, or these attempts or
// workers, at most 100. It returns where the next page begins, "0" after the last. It changes nothing.
func Check(ctx context.Context, r Runner, q keys.Queue, kind, cursor string, names []string) (p Part, next string, err error) {
	return readCheck(reply(r.One(ctx, check.call(SharedOf(q), append([]any{kind, cursor}, listed(names)...)...))), q, kind)
}

func readCheck(r redisconn.Reply, q keys.Queue, kind string) (p Part, next string, err error) {
	in := read(r.Value, r.Err)
	next = in.string()
	p.Queue = in.queue()
	in.lists(func(page *decoder) {
		one := page.list()
		switch kind {
		case Attempts:
			p.Attempts = append(p.Attempts, one.attemptFacts())
		case "workers", "suspects", "leaving", "idle", "rounds":
			p.Workers = append(p.Workers, one.worker())
		case "recurring", "recurrence":
			p.Schedules = append(p.Schedules, one.schedule())
		default:
			about := one.about(q.IsFailed())
			p.About, p.Names = append(p.About, about), append(p.Names, about.facts)
		}
		page.join(one)
	})
	return p, next, in.err
}

func (d *decoder) attemptFacts() invariants.Attempt {
	a := invariants.Attempt{ID: d.string(), HasList: d.int() == 1}
	_, a.Held = d.maybeInt()
	a.Name, _ = d.maybe()
	a.Runs, _ = d.maybe()
	a.Worker, a.Named = WorkerOf(a.ID), strings.HasSuffix(a.ID, "n")
	return a
}

func (d *decoder) worker() (w invariants.Worker) {
	w.ID = d.string()
	w.Deadline, _ = d.maybe()
	_, w.HasRound = d.maybe()
	_, w.Leaving = d.maybe()
	w.Suspect, _ = d.maybe()
	_, w.Idle = d.maybe()
	w.Highest = d.int()
	return w
}

func (d *decoder) schedule() (s invariants.Schedule) {
	s.Name = d.string()
	s.Until, _ = d.maybe()
	if times, there := d.maybe(); there {
		s.Times = append([]string{}, strings.Fields(times)...)
	}
	s.Passed, _ = d.maybe()
	s.Prints, _ = d.maybe()
	return s
}

// Repair mends a flaw, if it's still there, and reports whether it has. After that of an attempt or of
// a worker, call Evict until there's nothing more to do: it returns the tasks.
func Repair(ctx context.Context, r Runner, q keys.Queue, f invariants.Found) (mended bool, err error) {
	in := repair.ask(ctx, r, q, string(f.Flaw), f.Name, f.Detail)
	return in.int() == 1, in.err
}

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
	Error   past.Text

	facts invariants.Name
}

// IsAside reports whether a failed task has failed in the failed queue, too.
func (a *About) IsAside() bool { return a.facts.Aside }

// IsRisky reports whether the task waits to run alone.
func (a *About) IsRisky() bool { return a.facts.Risky }

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
		a.Behind, f.BadBehind = readBehind(behind, inFailed)
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
func readBehind(text string, inFailed bool) (a *About, damaged bool) {
	parts := strings.SplitN(text, ":", 5)
	if len(parts) < 5 {
		return nil, true
	}
	a = &About{At: min(max(numberIn(parts[0]), 0), 1<<53), Record: ReadRecord([]byte(parts[4]), inFailed)}
	return a, a.Record.Damaged
}

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

// A Queue is what Redis says about a queue as a whole.
type Queue = invariants.Queue

// A Whereabouts says where the waiting and failed copies of a task are, and what state the queue is in.
type Whereabouts struct {
	Queue  Queue
	Before []int // for each copy on the list, how many are before it there
	Names  []About
	Failed []About // by their names in the failed queue, newest first

	Crashes int // of a raw payload
}

// mostFailed is how many of the newest failed tasks Explain searches.
const mostFailed = 1000

// Explain looks for the copies of a payload, or for a name if one is given. The parameters limit it:
// most, the copies of each kind; depth, how far it looks into the list. It searches the newest 1,000
// of the failed tasks. It changes nothing. A copy that moves meanwhile may be missed.
func Explain(ctx context.Context, r Runner, q keys.Queue, name string, payload []byte, most, depth int) (*Whereabouts, error) {
	digest := ""
	if name == "" {
		digest = DigestOf(payload)
		name = uniqueMark + digest
	}
	w, failed := &Whereabouts{}, q.Failed()
	newest := func(key string) redisconn.Call { return redisconn.Command("ZREVRANGE", key, 0, mostFailed-1) }
	replies := r.Do(ctx, newest(failed.Ready()), newest(failed.Aside()))
	var err error
	names, failures := []string{name}, []string{}
	for _, reply := range replies {
		for _, of := range readAs(reply, redis.Strings, &err) {
			if isOf(name, of) {
				failures = append(failures, of)
			}
		}
	}
	crashes := 0
	if digest != "" && err == nil {
		copies := func(key string) redisconn.Call {
			from := rawMark + digest
			return redisconn.Command("ZRANGE", key, "["+from+":", "("+from+";", "BYLEX", "LIMIT", 0, most)
		}
		replies = r.Do(ctx, redisconn.Command("LLEN", q.Waiting()), copies(q.Copies()), copies(failed.Copies()),
			redisconn.Command("LPOS", q.Waiting(), payload, "RANK", -1, "COUNT", most, "MAXLEN", depth),
			redisconn.Command("HGET", q.Crashes(), digest))
		length := readAs(replies[0], redis.Int, &err)
		names = append(readAs(replies[1], redis.Strings, &err), name)
		failures = append(readAs(replies[2], redis.Strings, &err), failures...)
		for _, place := range readAs(replies[3], redis.Ints, &err) {
			w.Before = append(w.Before, max(length-1-place, 0)) // others may have been added meanwhile
		}
		text, _ := redis.String(replies[4].Value, replies[4].Err)
		crashes = countIn(text)
	}
	if err == nil {
		w.Failed, _, err = aboutEach(ctx, r, failed, failures[:min(len(failures), most)])
	}
	if err == nil {
		w.Names, w.Queue, err = aboutEach(ctx, r, q, names)
	}
	w.Crashes = crashes
	for i := range w.Names {
		if strings.HasPrefix(w.Names[i].Name, rawMark) {
			w.Names[i].Crashes = crashes
		}
	}
	return w, err
}

// isOf reports whether a task had the name before it failed: a number follows and, if a schedule made it, its time.
func isOf(name, failed string) bool {
	rest, ok := strings.CutPrefix(failed, name)
	return ok && failedName.MatchString(rest)
}

var failedName = regexp.MustCompile(`^(@\d+)?#\d+$`)

// aboutEach asks about names, and returns what is known of those that have a record.
func aboutEach(ctx context.Context, r Runner, q keys.Queue, names []string) (all []About, of Queue, err error) {
	s := SharedOf(q)
	for _, reply := range doEach(ctx, r, names, func(name string) redisconn.Call { return check.call(s, "tasks", "", name) }) {
		p, _, failed := readCheck(reply, q, "tasks")
		if err = cmp.Or(err, failed); err == nil && len(p.About) == 1 && p.About[0].facts.HasRecord {
			all = append(all, p.About[0])
		}
		of = p.Queue
	}
	return all, of, err
}
