package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A fence is the moment at which a worker was taken its membership.
type fence struct {
	commit int
	worker string
	failed bool     // or it has left
	held   []string // processes
}

// A replay follows the state of the queues of one namespace through the commits
// of the server, and checks after each one what is to be true between any two.
type replay struct {
	prefix     string
	lanes      map[string]*lane // by what stands around the kind in their keys
	stories    map[string]*story
	names      map[string]string // worker → peer
	runs       map[string]*story // process → its task, for all processes ever
	fences     []fence
	violations []string

	commit int
	// of the commit under way:
	touched map[string]bool // tasks
	born    map[string]bool // processes
	gone    map[string]process
	freed   map[string]string // process → who held it
	owners  map[string]bool   // workers whose sets have changed
}

func newReplay(prefix string) *replay {
	return &replay{prefix: prefix, lanes: map[string]*lane{}, stories: map[string]*story{}, names: map[string]string{}, runs: map[string]*story{}}
}

func (r *replay) violate(format string, args ...any) {
	if len(r.violations) < 100 {
		r.violations = append(r.violations, fmt.Sprintf("server, commit %d: %s", r.commit, fmt.Sprintf(format, args...)))
	}
}

// apply takes in one commit.
func (r *replay) apply(commands []command) error {
	r.commit++
	r.touched, r.born, r.gone, r.owners = map[string]bool{}, map[string]bool{}, map[string]process{}, map[string]bool{}
	r.freed = map[string]string{}
	for _, c := range commands {
		if err := r.execute(c); err != nil {
			return fmt.Errorf("commit %d: %.200q: %w", r.commit, c, err)
		}
	}
	r.check()
	return nil
}

// execute carries out one command, as far as it is about tasks and their owners.
func (r *replay) execute(c command) error {
	if len(c) < 2 {
		return nil
	}
	at := r.find(c[1])
	if at.lane == nil {
		if id, ok := strings.CutPrefix(at.kind, "worker:"); ok && c[0] == "HSET" {
			for i := 2; i+1 < len(c); i += 2 {
				if c[i] == "name" {
					r.names[id] = c[i+1]
				}
			}
		}
		return nil
	}
	l := at.lane
	switch c[0] {
	case "DEL", "UNLINK":
		for _, key := range c[1:] {
			if at := r.find(key); at.lane != nil {
				r.drop(at)
			}
		}
		return nil
	case "EXPIRE", "PEXPIRE", "PEXPIREAT", "PERSIST":
		return nil
	}
	switch at.kind + " " + c[0] {
	case "queues LPUSH":
		for _, task := range c[2:] {
			l.enqueued++
			l.waiting.push(task)
			s := r.put(task, +1)
			if s.number == 0 && len(s.starts) == 0 {
				s.number = l.enqueued
			}
		}
	case "queues RPOPLPUSH":
		task, ok := l.waiting.pop()
		if !ok {
			return errDiverged
		}
		r.move(task, l, r.find(c[2]))
	case "queues LREM":
		for range l.waiting.remove(c[3]) {
			r.put(c[3], -1)
		}
	case "process LMOVE":
		r.end(l, at.rest)
		to := r.find(c[2])
		if to.kind != "queues" || c[3] != "RIGHT" || c[4] != "RIGHT" {
			return fmt.Errorf("moved to %s", c[2])
		}
		p := r.gone[at.rest]
		task := p.task
		if token := l.working[p.worker][at.rest]; l.fenced[p.worker] != "" && token > 0 {
			// The newest go back first, so the oldest becomes the foremost.
			if last, ok := l.back[p.worker]; ok && last < token {
				r.violate("%s, with the token %d of worker %s, goes back after %d", task, token, p.worker, last)
			}
			l.back[p.worker] = token
		}
		to.lane.waiting.unpop(task)
		r.put(task, +1)
	case "process RPOP":
		r.end(l, at.rest)
	case "process LPUSH":
		r.begin(l, at.rest, c[2])
	case "working ZADD":
		return r.own(l, at.rest, c[2:])
	case "working ZREM":
		for _, id := range c[2:] {
			if l.owner[id] == at.rest {
				r.freed[id] = at.rest
				delete(l.owner, id)
			}
			delete(l.working[at.rest], id)
		}
		r.owners[at.rest] = true
	case "workers ZADD":
		switch mark, ok := l.fenced[c[3]]; {
		case ok && (mark == "0" || l.leaving[c[3]]):
			r.violate("worker %s is a member again, after a mark of %s", c[3], mark)
		case ok: // it had left, and came back as it may
			delete(l.fenced, c[3])
			delete(l.back, c[3])
		}
		l.members[c[3]] = true
	case "workers ZREM":
		for _, worker := range c[2:] {
			delete(l.members, worker)
			r.owners[worker] = true
		}
	case "suspects ZADD":
		score, worker := c[len(c)-2], c[len(c)-1]
		if _, again := l.fenced[worker]; (score == "0" || score == "-1") && !again {
			l.fenced[worker], l.leaving[worker] = score, true
			r.fences = append(r.fences, fence{r.commit, worker, score == "0", slices.Sorted(maps.Keys(l.working[worker]))})
		}
	case "suspects ZREM":
		for _, worker := range c[2:] {
			delete(l.leaving, worker)
			r.owners[worker] = true
		}
	case "keyed HSET":
		for i := 2; i+1 < len(c); i += 2 {
			if c[i] == "payload" {
				r.drop(at)
				l.keyed[at.rest] = c[i+1]
				r.put(c[i+1], +1)
			}
		}
	case "keyed HDEL":
		if slices.Contains(c[2:], "payload") {
			r.drop(at)
		}
	case "token SET":
		token, err := strconv.ParseInt(c[2], 10, 64)
		if err != nil {
			return err
		}
		if token <= l.token {
			r.violate("the token is %d after %d", token, l.token)
		}
		l.token = token
	default:
		switch at.kind {
		case "queues", "process", "working", "workers", "token":
			return errUnknownCommand
		}
	}
	return nil
}

var (
	errDiverged       = fmt.Errorf("the replay has no task where the server had one")
	errUnknownCommand = fmt.Errorf("the replay does not know this command")
)

// put notes that a task has one place more, or less.
func (r *replay) put(payload string, n int) *story {
	task := taskOf(payload)
	s := r.stories[task]
	if s == nil {
		s = &story{name: task, commit: r.commit}
		r.stories[task] = s
	}
	s.places += n
	r.touched[task] = true
	return s
}

// move takes a task from the list into a process.
func (r *replay) move(task string, from *lane, to place) {
	s := r.put(task, -1)
	if s.number > 0 && len(s.starts) == 0 {
		if s.number < from.latest {
			r.violate("%s, number %d, starts after number %d", task, s.number, from.latest)
		}
		from.latest = max(from.latest, s.number)
	}
	r.begin(to.lane, to.rest, task)
}

func (r *replay) begin(l *lane, id, task string) {
	if _, there := l.processes[id]; there {
		r.violate("process %s is started twice", id)
	}
	l.processes[id] = task
	r.put(task, +1)
	r.born[id] = true
}

// end takes the task out of a process.
func (r *replay) end(l *lane, id string) {
	task, there := l.processes[id]
	if !there {
		return
	}
	worker := cmp.Or(l.owner[id], r.freed[id])
	delete(l.processes, id)
	r.put(task, -1)
	r.gone[id] = process{task, worker, l}
}

// passing is a member that a step adds and removes, so that Redis makes a skip list of the
// set.
var passing = strings.Repeat("-", 65)

// own takes in processes of a worker, with their tokens.
func (r *replay) own(l *lane, worker string, pairs []string) error {
	if mark, ok := l.fenced[worker]; ok {
		r.violate("worker %s starts something, after a mark of %s", worker, mark)
	}
	if l.working[worker] == nil {
		l.working[worker] = map[string]int64{}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		token, err := strconv.ParseInt(pairs[i], 10, 64)
		if err != nil {
			return err
		}
		id := pairs[i+1]
		if id == passing {
			continue
		}
		if other, ok := l.owner[id]; ok {
			r.violate("process %s of worker %s is also of %s", id, other, worker)
		}
		if token <= l.token {
			r.violate("process %s has the token %d, after %d", id, token, l.token)
		}
		l.owner[id], l.working[worker][id] = worker, token
	}
	r.owners[worker] = true
	return nil
}

// drop has a key be there no more, or what waits in an entry.
func (r *replay) drop(at place) {
	l := at.lane
	switch at.kind {
	case "queues":
		for {
			task, ok := l.waiting.pop()
			if !ok {
				return
			}
			r.put(task, -1)
		}
	case "process":
		r.end(l, at.rest)
	case "keyed":
		if task, ok := l.keyed[at.rest]; ok {
			delete(l.keyed, at.rest)
			r.put(task, -1)
		}
	}
}

// check holds what the commit has changed against the invariants.
func (r *replay) check() {
	for id := range r.born {
		r.started(id)
	}
	for id, p := range r.gone {
		if !r.born[id] {
			r.ended(id, p)
		}
	}
	for task := range r.touched {
		s := r.stories[task]
		switch {
		case s.places > 1:
			r.violate("%s is in %d places", task, s.places)
		case s.places < 0:
			r.violate("%s is taken from where it is not", task)
		case s.places > 0 && (s.ends > 0 || s.dropped):
			r.violate("%s is back, after it had ended", task)
		case s.places == 0 && s.ends == 0:
			s.dropped = true // by a cancel, or it is lost: the journals tell
		}
	}
	for worker := range r.owners {
		for _, l := range r.lanes {
			if len(l.working[worker]) > 0 && !l.members[worker] && !l.leaving[worker] {
				r.violate("worker %s holds %d processes, and is no member", worker, len(l.working[worker]))
			}
			if len(l.working[worker]) == 0 {
				delete(l.working, worker)
			}
		}
	}
}

// started notes the start of a process, unless it ended in the same commit.
func (r *replay) started(id string) {
	for _, l := range r.lanes {
		task, there := l.processes[id]
		worker, owned := l.owner[id]
		if there != owned {
			r.violate("process %s: there %v, owned %v", id, there, owned)
		}
		if there && owned {
			s := r.stories[taskOf(task)]
			s.starts = append(s.starts, start{process: id, worker: worker, token: l.working[worker][id]})
			r.runs[id] = s
		}
	}
}

// ended notes how a process has ended: by where its task is now.
func (r *replay) ended(id string, p process) {
	s := r.stories[taskOf(p.task)]
	if _, owned := p.lane.owner[id]; owned {
		r.violate("process %s is gone, and still owned by %s", id, p.worker)
	}
	if p.worker == "" {
		r.violate("process %s of %s had no owner", id, p.task)
	}
	i := slices.IndexFunc(s.starts, func(st start) bool { return st.process == id })
	if i < 0 {
		r.violate("process %s of %s ends without a start", id, p.task)
		return
	}
	st := &s.starts[i]
	switch {
	case s.places == 0:
		st.end = finished
		s.ends, s.endedBy = s.ends+1, id
	case r.isFailed(p.task):
		st.end, s.failed = buried, true
	case p.lane.fenced[p.worker] == "0":
		st.end = returned
	default:
		st.end = stopped
	}
}

func (r *replay) isFailed(task string) bool {
	for _, l := range r.lanes {
		if l.failed {
			for _, t := range l.keyed {
				if t == task {
					return true
				}
			}
		}
	}
	return false
}
