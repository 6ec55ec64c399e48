package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/lane"
)

const prefix = "worqr:"

// A judge examines the changes made by each request, and reports broken invariants
// (docs/protocol.md). It reads the data in Redis and the requests, and knows nothing
// about how the scripts work.
type judge struct {
	s     *server
	w     *world // nil if nothing is known of processes
	wrong []string

	lanes   map[string]*lane.Lane     // by queue, "failed:" before that of a failed queue
	places  map[string]map[string]int // queue → payload → in how many places
	known   map[string]bool           // payloads that were accepted once
	refused map[string]bool           // whose producer was told that they weren't accepted
	settled map[string]bool           // whose producer was told that they were
	unique  map[string]bool           // enqueued under a lock
	twins   map[string]bool           // of these, one has failed and another may have been enqueued since
	cancels map[string]int64          // queue and name → token of the last cancel
	dead    map[string]bool           // lane and worker: it was evicted, and had known that it was a member
	serves  map[string]bool           // lane and worker: it knows that it is a member
	asks    map[string]bool           // lane and worker: the answer to its join hasn't reached it yet
	left    map[string]bool           // lane and worker: it has left, even if the server has lost that
	leaving map[string]bool           // lane and worker: it has begun to leave since it joined
	renewed map[string]int64          // lane and worker → ms of Redis time
	revived map[string]bool           // lanes and attempts that existed when the server came back without its last writes
	expired map[string]bool           // lanes and attempts whose task had expired when it was taken
	homes   map[string]*process       // worker → where it lives

	started map[string]*start // lane and attempt
	starts  map[string]int    // of a payload

	outcomes map[string]map[string]bool // of a payload that keeps its result: how its tasks have ended
	occurs   map[string]*occurring      // queue and name
	at       map[string]*start          // of a payload: the last that a handler has started
	verdict
}

// A start is a process that the server has started.
type start struct {
	payload  string
	digest   string // by which cancels cover it; "": none does
	token    int64
	failed   bool // it is of the failed queue
	begun    bool // by a handler
	ready    bool // the handler has returned nil
	returned bool // the handler has returned
	at       *process
	ctx      context.Context // of the handler
}

// A verdict counts how tasks ended.
type verdict struct {
	Enqueued, Finished, Canceled, Replaced, Starts, Extra, Returned int
	Evicted                                                         int // workers that were evicted
	Occurred, Told                                                  int // occurrences; answers to waiters
}

func newJudge(s *server) *judge {
	return &judge{
		s: s, lanes: map[string]*lane.Lane{}, places: map[string]map[string]int{}, known: map[string]bool{}, refused: map[string]bool{}, settled: map[string]bool{},
		unique: map[string]bool{}, twins: map[string]bool{}, cancels: map[string]int64{}, dead: map[string]bool{}, serves: map[string]bool{}, asks: map[string]bool{}, left: map[string]bool{}, leaving: map[string]bool{}, renewed: map[string]int64{}, revived: map[string]bool{}, expired: map[string]bool{},
		homes: map[string]*process{}, started: map[string]*start{}, starts: map[string]int{}, at: map[string]*start{},
		outcomes: map[string]map[string]bool{}, occurs: map[string]*occurring{},
	}
}

// violation records one. The first ones are the most useful.
func (j *judge) violation(format string, args ...any) {
	if len(j.wrong) == 20 {
		return
	}
	text := fmt.Sprintf(format, args...)
	if j.w != nil {
		text = fmt.Sprintf("at %v: %s", j.w.now(), text)
		j.w.record.note(j.w.now(), "-", "VIOLATION "+text)
	}
	j.wrong = append(j.wrong, text)
}

// request makes the server run a request, and judges the result.
func (j *judge) request(args []string, from *process, again bool) (reply any, verb string) {
	j.s.begin()
	r, p, early := j.s.parse(args)
	if early != nil {
		return early, r.verb
	}
	r.from, r.copy = from, again
	reply = j.s.do(r, p)
	if len(j.s.touched) > 0 {
		j.look(&r)
	}
	if e, ok := reply.(refusal); ok && (len(e) < 4 || e[:4] == "ERR ") {
		j.violation("%s was answered %q", r.verb, string(e))
	}
	return reply, r.verb
}

// welcomed records that the answer to a join has reached its worker.
func (j *judge) welcomed(args []string) {
	if r, _, early := j.s.parse(args); early == nil {
		queue, failed, _, _, _ := lane.Place(prefix, r.keys[0])
		delete(j.asks, laneName(queue, failed)+" "+r.worker())
	}
}

func laneName(queue string, failed bool) string {
	if failed {
		return "failed:" + queue
	}
	return queue
}

func (j *judge) lane(queue string, failed bool) *lane.Lane {
	name := laneName(queue, failed)
	l := j.lanes[name]
	if l == nil {
		l = lane.New(queue, failed)
		j.lanes[name] = l
	}
	return l
}

// A step is the effect of one request on one lane.
type step struct {
	*judge
	r    *request
	was  *lane.Lane
	is   *lane.Lane
	kind map[string]bool // of changed keys

	ends  map[string]end // in a call of finish: how attempts should end
	began []string       // attempts, by token
	ended []string       // attempts
}

// An end is the end of an attempt, as a worker tells it.
type end struct {
	token int64
	verb  string
}

// look reads what the request has changed, and judges that.
func (j *judge) look(r *request) {
	steps := map[*lane.Lane]*step{}
	moved := map[string]map[string]int{} // queue → payload → in how many more places it is
	for key := range j.s.touched {
		queue, failed, kind, of, ok := lane.Place(prefix, key)
		if !ok || kind == "ages" || kind == "once" || kind == "result" {
			continue
		}
		l := j.lane(queue, failed)
		st := steps[l]
		if st == nil {
			st = &step{judge: j, r: r, was: l.Copy(), is: l, kind: map[string]bool{}}
			steps[l] = st
			if moved[queue] == nil {
				moved[queue] = map[string]int{}
			}
		}
		st.kind[kind] = true
		v := j.s.read(key)
		lane.Moved(kind, of, l.Get(kind, of), v, func(p string, n int) {
			moved[queue][p] += n
			if n > 0 && failed {
				j.outcome(p, "failed")
			}
			if n > 0 && failed && j.unique[p] {
				j.twins[p] = true
			}
		})
		l.Set(kind, of, v)
	}
	for queue, by := range moved {
		j.count(queue, by)
	}
	for _, st := range steps {
		st.compare()
	}
	for queue, by := range moved {
		j.conserved(r, queue, by, steps)
	}
	for _, st := range steps {
		st.rules()
	}
}

// count records that payloads have moved.
func (j *judge) count(queue string, by map[string]int) {
	all := j.places[queue]
	if all == nil {
		all = map[string]int{}
		j.places[queue] = all
	}
	for p, n := range by {
		if all[p] += n; all[p] == 0 {
			delete(all, p)
		}
	}
}

// compare determines which attempts began and ended.
func (st *step) compare() {
	st.ends = map[string]end{}
	for _, e := range st.r.call.Ends() {
		st.ends[e.Attempt] = end{e.Token, string(e.Verb)}
	}
	if !st.kind["process"] {
		return
	}
	st.began, st.ended = st.is.Since(st.was)
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // the scripts' arguments are numbers there
	return n
}

// restored records that the server has been reset to an earlier state, or to none.
func (j *judge) restored(all snapshot) {
	j.known, j.refused, j.settled = map[string]bool{}, map[string]bool{}, map[string]bool{} // they may come again
	j.renewed, j.dead = map[string]int64{}, map[string]bool{}
	j.occurs = map[string]*occurring{}
	maps.Copy(j.renewed, all.renewed)
	maps.Copy(j.dead, all.dead)
	j.lanes, j.places = map[string]*lane.Lane{}, map[string]map[string]int{}
	for key, v := range all.values {
		queue, failed, kind, of, ok := lane.Place(prefix, key)
		if !ok {
			continue
		}
		l := j.lane(queue, failed)
		held := lane.Value(v)
		l.Set(kind, of, held)
		by := map[string]int{}
		lane.Moved(kind, of, nil, held, func(p string, n int) { by[p] += n })
		j.count(queue, by)
	}
	for _, l := range j.lanes {
		for w := range l.Workers {
			if p := j.homes[w]; p != nil {
				p.excuse() // its lease has expired sooner, and it may be a suspect again
			}
		}
		for id := range l.Process {
			j.revived[laneName(l.Queue, l.Failed)+" "+id] = true
		}
	}
}

// ms returns the time of Redis.
func (j *judge) ms() int64 { return j.s.clock().UnixMilli() }

// told records the error that a producer got from an enqueue. If the call was
// carried out, only ErrUnknownOutcome is allowed.
func (j *judge) told(payload string, err error) {
	switch lost := j.w.Rollbacks + j.w.Wipes; {
	case err == nil && !j.known[payload] && lost == 0:
		j.violation("the producer of %s got no error, but it was not enqueued", payload)
	case err == nil:
		j.settled[payload] = true
	case errors.Is(err, worqr.ErrUnknownOutcome):
	default:
		j.refused[payload] = true
		if j.known[payload] {
			j.violation("the producer of %s got an error, but it was enqueued", payload)
		}
	}
}

// exclusive reports whether two handlers must not run a task at the same time. When its clock
// jumps, Redis can't know how long a lease has lasted.
func (j *judge) exclusive() bool {
	return j.w.opts.Exclusive && j.w.Jumps+j.w.Rollbacks+j.w.Wipes+j.w.ByHand == 0
}

// begins records that a handler starts a task.
func (j *judge) begins(ctx context.Context, p *process, t *worqr.Task) *start {
	s := j.started[laneName(t.Queue, t.Failure != nil)+" "+t.AttemptID]
	switch {
	case s == nil:
		j.violation("%s begins process %s (%s), which was never started", p.name, t.AttemptID, t.Payload)
		return &start{}
	case s.payload != string(t.Payload) || s.token != t.Token:
		j.violation("%s begins process %s with %s and token %d, but it was started with %s and %d", p.name, t.AttemptID, t.Payload, t.Token, s.payload, s.token)
	case s.begun:
		j.violation("%s begins process %s (%s), which was begun before", p.name, t.AttemptID, t.Payload)
	}
	s.begun, s.at, s.ctx = true, p, ctx
	j.carries(t)
	if before := j.at[s.payload]; before != nil && !before.returned && !before.at.dead && before.ctx.Err() == nil && !j.twins[s.payload] && !isRecurring(s.payload) && j.exclusive() {
		j.violation("%s begins %s, which %s still runs, although the handlers are exclusive", p.name, s.payload, before.at.name)
	}
	j.at[s.payload] = s
	return s
}
