// Package spec is a second implementation of the scripts that can lose a task, written from the words of
// docs/protocol.md: join, start, finish, heartbeat, leave, evict, cancel, mark and remove. It works on a model of
// a queue's keys. A test compares it with the scripts, and integration/search runs it in every order of events.
//
// It leaves out what loses no task: events, results, ages, keys of the wrong type, the limits of bytes, how many
// failed tasks are kept, recurrence, and what is published.
package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// A Queue is what Redis holds of a queue. A copy of it is a queue of its own, but for Failed.
type Queue struct {
	Now    int64                    // Redis's time in ms
	Hears  func(worker string) bool // whether a wake-up reaches the worker
	Limits *Limits
	Failed *Queue // nil: this is a failed queue

	Queues                                List // the last one is the front
	Tasks, Next, Runs                     Hash
	Ready, Schedule, Risky, Aside, Copies Set
	Process                               Hash // attempt → what it runs
	Working                               Table[Set]
	Workers, Suspects, Leaving, Idle      Set
	Rounds, State, Crashes                Hash
	Canceled                              Hash // by digest
}

// A List is a list in Redis.
type List []string

// Limits are the sizes of pages.
type Limits struct {
	Return int // tasks of a call of leave or evict
	Copies int // of a cancel on the list, and then outside of it
	Mark   int // attempts of a mark
}

// The refusals that lose nothing.
var (
	ErrEvicted = errors.New("EVICTED")
	ErrLost    = errors.New("LOST")
)

const (
	never = 1<<53 - 1 // the deadline of a lease that never ends
	front = 1 << 52   // a returned task has the place token - front
	most  = 512       // start in a round
)

// Kinds returns the keys of which a queue has one, by name.
func (q *Queue) Kinds() map[string]any {
	return map[string]any{
		"queues": &q.Queues, "tasks": &q.Tasks, "next": &q.Next, "runs": &q.Runs, "ready": &q.Ready, "schedule": &q.Schedule,
		"risky": &q.Risky, "aside": &q.Aside, "copies": &q.Copies, "workers": &q.Workers, "suspects": &q.Suspects,
		"leaving": &q.Leaving, "idle": &q.Idle, "rounds": &q.Rounds, "state": &q.State, "crashes": &q.Crashes,
	}
}

// Number returns a number of the state.
func (q *Queue) Number(field string) int64 {
	v, _ := q.State.Get(field)
	return number(v)
}

func (q *Queue) set(field string, n int64) { q.State.Put(field, text(n)) }

func (q *Queue) add(field string, n int64) int64 {
	n += q.Number(field)
	q.set(field, n)
	return n
}

func (q *Queue) paused() bool { return q.State.Has("paused") }

func (q *Queue) returning() bool { return len(q.Leaving) > 0 }

func (q *Queue) nextPlace() int64 { return q.add("place", 1) }

// working returns what a worker runs.
func (q *Queue) working(worker string) Set {
	s, _ := q.Working.Get(worker)
	return s
}

// hold notes the token of an attempt; 0: it has ended.
func (q *Queue) hold(worker, attempt string, token int64) {
	s := q.working(worker)
	if s.Remove(attempt); token != 0 {
		s.Put(attempt, token)
	}
	if q.Working.Put(worker, s); len(s) == 0 {
		q.Working.Delete(worker)
	}
}

// run returns what is known of a name that runs, or has failed.
func (q *Queue) run(name string) Run {
	v, _ := q.Runs.Get(name)
	return ReadRun(v)
}

func (q *Queue) setRun(name string, r Run) {
	if q.Runs.Delete(name); r != (Run{}) {
		q.Runs.Put(name, r.String())
	}
}

func (q *Queue) record(name string) Record {
	v, _ := q.Tasks.Get(name)
	return ReadRecord(v)
}

func (q *Queue) behind(name string) *Behind {
	v, _ := q.Next.Get(name)
	return ReadBehind(v)
}

// crashes returns how many workers died holding a raw task.
func (q *Queue) crashes(digest string) int64 {
	v, _ := q.Crashes.Get(digest)
	return number(v)
}

func (q *Queue) waiting(name string) bool { return q.run(name).Attempt == "" && q.Tasks.Has(name) }

// A notice is what a call has made startable, and the first time that it has planned: for these, idle workers are woken.
type notice struct {
	startable int
	planned   int64
}

func (q *Queue) makeReady(n *notice, name string, place int64) {
	q.Ready.Put(name, place)
	n.startable++
}

// plan has a name wait for a time, or, if that has come, at the end of ready.
func (q *Queue) plan(n *notice, name string, at int64) {
	if at <= q.Now {
		q.makeReady(n, name, q.nextPlace())
		return
	}
	q.Schedule.Put(name, at)
	n.planned = min(n.planned, at)
}

func newNotice() *notice { return &notice{planned: math.MaxInt64} }

// tell wakes an idle worker for each task that has become startable, or one if a time before the claimed one was
// planned.
func (q *Queue) tell(n *notice) {
	if n.startable == 0 && n.planned == math.MaxInt64 || q.paused() {
		return
	}
	claimed := q.Number("claimed")
	if n.startable == 0 && !(claimed > q.Now && claimed <= n.planned) {
		q.Wake(1)
	}
	q.Wake(n.startable)
}

// Wake wakes idle workers, the longest idle first, until so many have heard it.
func (q *Queue) Wake(count int) {
	for range 64 {
		if count <= 0 || len(q.Idle) == 0 {
			return
		}
		worker := q.Idle[0].Name
		q.Idle.Remove(worker)
		if q.Hears != nil && q.Hears(worker) {
			count--
		}
	}
}

// Lines lists what the queue and its failed queue hold, as text.
func (q *Queue) Lines() (lines []string) {
	add := func(kind string, v any) {
		if text := fmt.Sprint(v); text != "[]" {
			lines = append(lines, kind+" "+text)
		}
	}
	for kind, v := range q.Kinds() {
		switch v := v.(type) {
		case *List:
			add(kind, *v)
		case *Set:
			add(kind, *v)
		case *Hash:
			add(kind, slices.DeleteFunc(slices.Clone(*v), func(f Entry[string]) bool {
				return kind == "state" && f.Value == "0"
			}))
		}
	}
	add("process", q.Process)
	add("working", q.Working)
	add("canceled", q.Canceled)
	slices.Sort(lines)
	if q.Failed != nil {
		for _, l := range q.Failed.Lines() {
			lines = append(lines, "failed."+l)
		}
	}
	return lines
}

// Append appends what the queue and its failed queue hold to b. Queues that hold the same append the same.
func (q *Queue) Append(b []byte) []byte {
	b = appendAll(b, q.Queues, func(b []byte, item string) []byte { return append(b, item...) })
	for _, h := range []Hash{q.Tasks, q.Next, q.Runs, q.Process, q.Rounds, q.State, q.Crashes, q.Canceled} {
		b = appendAll(b, h, func(b []byte, e Entry[string]) []byte { return append(append(append(b, e.Name...), '='), e.Value...) })
	}
	for _, s := range []Set{q.Ready, q.Schedule, q.Risky, q.Aside, q.Copies, q.Workers, q.Suspects, q.Leaving, q.Idle} {
		b = appendAll(b, s, appendMember)
	}
	for _, e := range q.Working {
		b = appendAll(append(b, e.Name...), e.Value, appendMember)
	}
	if q.Failed != nil {
		b = q.Failed.Append(append(b, '!'))
	}
	return b
}

func appendAll[T any](b []byte, all []T, one func(b []byte, v T) []byte) []byte {
	for _, v := range all {
		b = append(one(b, v), ',')
	}
	return append(b, ';')
}

func appendMember(b []byte, m Member) []byte {
	return strconv.AppendInt(append(append(b, m.Name...), '='), m.Score, 10)
}
