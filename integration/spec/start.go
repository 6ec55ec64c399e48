package spec

import (
	"fmt"
	"strings"
)

// A Start is a request for tasks.
type Start struct {
	Worker              string
	Round, Stamp, Lease int64
	Wanted, Ahead       int
	Idle, Solo          bool
	MaxCrashes          int64
}

// Words returns the call in the words of a scenario.
func (r Start) Words() string {
	n := map[bool]int{true: 1}
	return fmt.Sprintf("start worker=%s round=%d stamp=%d lease=%d wanted=%d ahead=%d idle=%d solo=%d max-crashes=%d", r.Worker, r.Round,
		r.Stamp, r.Lease, r.Wanted, r.Ahead, n[r.Idle], n[r.Solo], r.MaxCrashes)
}

// A Task is one that a worker has started.
type Task struct {
	ID, Name, Record string // a raw one has no name, and its record is the payload
	Token            int64
	Retries, Crashes int64
	Error            string
	Over             bool // it has ended since
}

// A Started is the answer to a start.
type Started struct {
	First        int64
	Tasks        []Task
	Last, Before int64
	More         int
	Due, Now     int64
}

// Start takes tasks.
func (q *Queue) Start(r Start) (Started, error) {
	last, is := q.Rounds.Get(r.Worker)
	if !is {
		return Started{}, ErrEvicted
	}
	q.renew(r.Worker, r.Lease)
	a := Started{First: q.Number("token") + 1, Before: number(last), Due: -1, Now: q.Now}
	if r.Round <= a.Before {
		q.repeat(r, &a)
		return a, nil
	}
	q.Idle.Remove(r.Worker)
	q.Rounds.Put(r.Worker, text(r.Round))
	s := starting{Queue: q, r: r, a: &a, most: min(r.Wanted, most)}
	starts, idlers := !q.paused() && !q.returning(), len(q.Idle)
	if starts {
		s.all(idlers)
	}
	a.Last = q.Number("token")
	a.More = len(q.Queues) + len(q.Ready)
	if q.paused() {
		a.More = InPause
	} else if q.returning() {
		a.More = InReturn
	}
	idle := r.Idle && len(a.Tasks) < r.Wanted-r.Ahead && a.More <= 0
	if idle {
		q.Idle.Put(r.Worker, q.Now)
	}
	if starts {
		s.tellOthers(idle, idlers)
	}
	return a, nil
}

// repeat answers what a round started and still runs. If it has claimed a time, its worker doesn't know.
func (q *Queue) repeat(r Start, a *Started) {
	a.First, a.Last = 0, q.Number("token")
	q.State.Delete("claimed")
	for _, m := range q.working(r.Worker) {
		rest, is := strings.CutPrefix(m.Name, fmt.Sprintf("%s.%d.", r.Worker, r.Round))
		if !is {
			continue
		}
		n := int(number(strings.TrimSuffix(rest[strings.LastIndex(rest, ".")+1:], "n")))
		for len(a.Tasks) < n {
			a.Tasks = append(a.Tasks, Task{Over: true})
		}
		a.First = max(m.Score, -m.Score) - int64(n) + 1
		if item, is := q.Process.Get(m.Name); is {
			a.Tasks[n-1] = q.describe(m.Name, item, max(m.Score, -m.Score))
		}
	}
}

// describe says what a worker gets to know of a task.
func (q *Queue) describe(attempt, item string, token int64) Task {
	if !isNamed(attempt) {
		return Task{ID: attempt, Record: item, Token: token, Crashes: q.crashes(Digest(item))}
	}
	r := q.run(item)
	if isRaw(item) {
		r.Crashes = q.crashes(digestIn(item))
	}
	record, _ := q.Tasks.Get(item)
	return Task{attempt, item, record, token, r.Retries, r.Crashes, r.Error, false}
}

// A starting is a start in progress.
type starting struct {
	*Queue
	r      Start
	a      *Started
	most   int
	solo   bool // whether a risky one may start
	parked int  // how many became risky
	took   bool // a risky one
}

// all starts what may start.
func (s *starting) all(idlers int) {
	s.solo = s.r.Solo
	s.moveDue()
	returned := func() bool { return len(s.Ready) > 0 && s.Ready[0].Score < 0 }
	if len(s.Risky) > 0 || returned() || idlers > 0 {
		s.most = min(s.most, s.r.Wanted-s.r.Ahead)
	}
	if s.solo && len(s.Risky) > 0 && s.room() {
		m := s.Risky[0]
		s.Risky.Remove(m.Name)
		s.named(m, true)
		s.solo, s.took = false, true
	}
	for returned() && s.room() {
		s.ready()
	}
	for turn := s.Number("token")%2 == 0; s.room() && len(s.Ready)+len(s.Queues) > 0; turn = !turn {
		if turn && len(s.Ready) > 0 {
			s.ready()
		} else if !turn && len(s.Queues) > 0 {
			s.raw()
		}
	}
}

func (s *starting) room() bool { return len(s.a.Tasks) < s.most }

// moveDue moves those whose time has come to the end of ready.
func (s *starting) moveDue() {
	for _, m := range s.Schedule.UpTo(s.Now) {
		s.Schedule.Remove(m.Name)
		s.Ready.Put(m.Name, s.nextPlace())
	}
}

func (s *starting) ready() {
	m := s.Ready[0]
	s.Ready.Remove(m.Name)
	s.named(m, false)
}

func (s *starting) isRisky(crashes int64) bool {
	return s.r.MaxCrashes > 0 && crashes >= 1 && crashes >= s.r.MaxCrashes-1
}

// stays reports whether a task stays where it is: one that has crashed isn't prefetched, nor is what follows it.
func (s *starting) stays(crashes int64) bool {
	if crashes > 0 {
		s.most = min(s.most, s.r.Wanted-s.r.Ahead)
	}
	return !s.room()
}

// begin starts an attempt.
func (s *starting) begin(item, suffix string) {
	id := fmt.Sprintf("%s.%d.%d.%d%s", s.r.Worker, s.r.Round, s.r.Stamp, len(s.a.Tasks)+1, suffix)
	token := s.add("token", 1)
	s.Process.Put(id, item)
	s.hold(s.r.Worker, id, token)
	if suffix == "n" {
		r := s.run(item)
		r.Attempt = id
		s.setRun(item, r)
	}
	s.a.Tasks = append(s.a.Tasks, s.describe(id, item, token))
}

// named starts a named task. One that is risky uses up solo, or moves to risky.
func (s *starting) named(m Member, fromRisky bool) {
	if !s.waiting(m.Name) {
		return // another program's mistake
	}
	crashes := s.run(m.Name).Crashes
	if isRaw(m.Name) {
		crashes = s.crashes(digestIn(m.Name))
	}
	if s.stays(crashes) {
		s.Ready.Put(m.Name, m.Score)
		return
	}
	if s.isRisky(crashes) && !fromRisky {
		if !s.solo {
			s.Risky.Put(m.Name, m.Score)
			s.parked++
			return
		}
		s.solo = false
	}
	s.begin(m.Name, "n")
}

// raw starts the task at the front of the list. One that is risky uses up solo, or moves to risky under a name.
func (s *starting) raw() {
	payload := s.Queues[len(s.Queues)-1]
	if s.stays(s.crashes(Digest(payload))) {
		return
	}
	s.Queues = s.Queues[:len(s.Queues)-1]
	s.add("taken", 1)
	if s.isRisky(s.crashes(Digest(payload))) {
		if !s.solo {
			place := s.nextPlace()
			s.Risky.Put(s.outside(payload, place), place)
			s.parked++
			return
		}
		s.solo = false
	}
	s.begin(payload, "")
}

// outside gives a raw task a name, and returns it.
func (q *Queue) outside(payload string, place int64) string {
	name := fmt.Sprintf("r:%s:%d", Digest(payload), place)
	q.Tasks.Put(name, Record{Payload: payload}.String())
	q.Copies.Put(name, 0)
	return name
}

// tellOthers wakes an idle worker if more can start, and has the next time claimed. What is in risky counts only if
// this call has moved a task there, or taken one.
func (s *starting) tellOthers(idle bool, idlers int) {
	if idlers > 0 && (s.a.More > 0 || (s.parked > 0 || s.took) && len(s.Risky) > 0) {
		s.Wake(1)
	}
	claimed := s.Number("claimed")
	if len(s.Schedule) == 0 || claimed > s.Now && claimed <= s.Schedule[0].Score {
		return
	}
	if idle {
		s.set("claimed", s.Schedule[0].Score)
		s.a.Due = max(s.Schedule[0].Score-s.Now, 0) * 1000
	} else if idlers > 0 {
		s.Wake(1)
	}
}
