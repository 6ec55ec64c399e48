package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/integration/invariants"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
)

// A fence is the moment at which a worker lost its membership.
type fence struct {
	commit int
	worker string
	failed bool     // false: it left
	held   []string // processes
}

// A replay follows the state of the queues of one namespace through the server's commits, and
// checks the invariants after each one.
type replay struct {
	prefix     string
	store      *spec.Memory
	queues     map[string]*queue // by the parts of their keys around the kind
	stories    map[string]*story
	names      map[string]string // worker → peer
	runs       map[string]*story // process → its task, for all processes
	fences     []fence
	violations []string

	commit  int
	touched map[string]bool // tasks changed by the current commit
}

// A queue is a queue or failed queue, as it was before the current commit.
type queue struct {
	*lane.Lane
	fenced   map[string]string // worker → its first mark
	back     map[string]int64  // worker → token of its last returned task
	enqueued int
	latest   int // the number of the task that most recently had its first start
}

func newReplay(prefix string) *replay {
	r := &replay{prefix: prefix, store: spec.NewMemory(), queues: map[string]*queue{}, stories: map[string]*story{}, names: map[string]string{}, runs: map[string]*story{}}
	r.store.SetTime(time.Unix(0, 0)) // the server deletes what has expired
	return r
}

func (r *replay) violate(format string, args ...any) {
	if len(r.violations) < 100 {
		r.violations = append(r.violations, fmt.Sprintf("server, commit %d: %s", r.commit, fmt.Sprintf(format, args...)))
	}
}

// find returns the queue, the kind and the rest of a key; the queue is nil if it isn't a queue's
// key.
func (r *replay) find(key string) (q *queue, kind, of string) {
	name, failed, kind, of, ok := lane.Place(r.prefix+":", key)
	if !ok {
		return nil, "", ""
	}
	q = r.queues[fmt.Sprint(failed, name)]
	if q == nil {
		q = &queue{Lane: lane.New(name, failed), fenced: map[string]string{}, back: map[string]int64{}}
		r.queues[fmt.Sprint(failed, name)] = q
	}
	return q, kind, of
}

// apply applies one commit.
func (r *replay) apply(commands []command) error {
	r.commit++
	changed := map[string]bool{} // keys
	for _, c := range commands {
		if len(c) < 2 {
			continue
		}
		r.execute(c)
		reply := r.store.Do(c...)
		if refused, ok := reply.(spec.Refusal); ok {
			return fmt.Errorf("commit %d: %.200q: %s", r.commit, c, refused)
		}
		switch n := 2; c[0] {
		case "DEL", "UNLINK":
			n = len(c)
			fallthrough
		default:
			for _, key := range c[1:n] {
				changed[key] = true
			}
		case "RPOPLPUSH", "LMOVE":
			if reply == nil {
				return fmt.Errorf("commit %d: %.200q: the list is empty", r.commit, c)
			}
			changed[c[1]], changed[c[2]] = true, true
		}
	}
	r.check(changed)
	return nil
}

// execute checks a command before it is applied, if the order within a commit matters.
func (r *replay) execute(c command) {
	q, kind, of := r.find(c[1])
	if id, ok := strings.CutPrefix(c[1], r.prefix+":worker:"); ok && c[0] == "HSET" {
		for pair := range slices.Chunk(c[2:], 2) {
			if pair[0] == "name" {
				r.names[id] = pair[1]
			}
		}
	}
	switch kind + " " + c[0] {
	case "queues LPUSH":
		for _, task := range c[2:] {
			q.enqueued++
			if s := r.story(task); s.number == 0 && len(s.starts) == 0 {
				s.number = q.enqueued
			}
		}
	case "queues RPOPLPUSH":
		if next, _ := r.store.Do("LRANGE", c[1], "-1", "-1").([]any); len(next) > 0 {
			if s := r.story(next[len(next)-1].(string)); s.number > 0 && len(s.starts) == 0 {
				if s.number < q.latest {
					r.violate("%s, number %d, starts after number %d", s.name, s.number, q.latest)
				}
				q.latest = max(q.latest, s.number)
			}
		}
	case "process LMOVE":
		worker := q.Owner[of]
		if token := q.TokenOf(of); q.fenced[worker] != "" && token > 0 {
			// The newest go back first, so that the oldest ends up in front.
			if last, ok := q.back[worker]; ok && last < token {
				r.violate("%s, with the token %d of worker %s, goes back after %d", q.Process[of], token, worker, last)
			}
			q.back[worker] = token
		}
	case "workers ZADD":
		worker := c[len(c)-1]
		_, leaving := r.store.Do("ZSCORE", strings.Replace(c[1], ":workers:", ":suspects:", 1), worker).(string)
		switch mark, ok := q.fenced[worker]; {
		case ok && (mark == "0" || leaving):
			r.violate("worker %s is a member again, after a mark of %s", worker, mark)
		case ok: // it had left, and may come back
			delete(q.fenced, worker)
			delete(q.back, worker)
		}
	case "suspects ZADD":
		for pair := range slices.Chunk(c[2+len(c)%2:], 2) { // after NX
			score, worker := pair[0], pair[1]
			if _, again := q.fenced[worker]; (score == "0" || score == "-1") && !again {
				q.fenced[worker] = score
				r.fences = append(r.fences, fence{r.commit, worker, score == "0", slices.Sorted(maps.Keys(q.Working[worker]))})
			}
		}
	}
}

// story returns the story of the task with a payload.
func (r *replay) story(payload string) *story {
	task := load.TaskOf(payload)
	s := r.stories[task]
	if s == nil {
		s = &story{name: task, commit: r.commit}
		r.stories[task] = s
	}
	return s
}

// check loads what the commit has changed, and checks the invariants.
func (r *replay) check(changed map[string]bool) {
	was, kinds := map[*queue]*lane.Lane{}, map[*queue]map[string]bool{}
	r.touched = map[string]bool{}
	for key := range changed {
		q, kind, of := r.find(key)
		if q == nil {
			continue
		}
		if was[q] == nil {
			was[q], kinds[q] = q.Copy(), map[string]bool{}
		}
		kinds[q][kind] = true
		v := lane.Value(r.store.Get(key))
		lane.Moved(kind, q.Get(kind, of), v, func(payload string, n int) {
			s := r.story(payload)
			s.places += n
			r.touched[s.name] = true
		})
		q.Set(kind, of, v)
	}
	for q, was := range was {
		began, ended := q.Since(was)
		invariants.State(q.Lane, kinds[q], r.violate)
		invariants.Tokens(was, q.Lane, began, r.violate)
		r.inLine(was, q.Lane, began)
		for _, id := range began {
			worker := q.Owner[id]
			if mark, ok := q.fenced[worker]; ok {
				r.violate("worker %s starts something, after a mark of %s", worker, mark)
			}
			s := r.story(q.Process[id])
			s.starts = append(s.starts, start{process: id, worker: worker, token: q.TokenOf(id)})
			r.runs[id] = s
		}
		for _, id := range ended {
			r.ended(q, id, was.Process[id], was.Owner[id])
		}
	}
	for task := range r.touched {
		s := r.stories[task]
		switch {
		case s.places > 1:
			r.violate("%s is in %d places", task, s.places)
		case s.places > 0 && (s.ends > 0 || s.dropped):
			r.violate("%s is back, after it had ended", task)
		case s.places == 0 && s.ends == 0:
			s.dropped = true // canceled or lost: the journals decide
		}
	}
}

// ended records how a process has ended, which follows from where its task is now.
func (r *replay) ended(q *queue, id, task, worker string) {
	s := r.story(task)
	i := slices.IndexFunc(s.starts, func(st start) bool { return st.process == id })
	if i < 0 {
		r.violate("process %s of %s ends without a start", id, task)
		return
	}
	st := &s.starts[i]
	switch {
	case s.places == 0:
		st.end = finished
		s.ends, s.endedBy = s.ends+1, id
	case r.isFailed(task):
		st.end, s.failed = failedForGood, true
	case q.fenced[worker] == "0":
		st.end = returned
	default:
		st.end = stopped
	}
}

// isFailed reports whether a task is in a failed queue.
func (r *replay) isFailed(task string) bool {
	for _, q := range r.queues {
		if !q.Failed {
			continue
		}
		for _, e := range q.Entry {
			if e["payload"] == task {
				return true
			}
		}
	}
	return false
}
