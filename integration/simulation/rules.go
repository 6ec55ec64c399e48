package simulation

import (
	"math"
	"reflect"
	"slices"

	"github.com/worqr/worqr/integration/calls"
	"github.com/worqr/worqr/integration/lane"
	"github.com/worqr/worqr/integration/spec"
)

// conserved judges that payloads only appear where one was enqueued, and only
// disappear for a reason.
func (j *judge) conserved(r *request, queue string, by map[string]int, steps map[*lane.Lane]*step) {
	for payload, n := range by {
		switch now := j.places[queue][payload]; {
		case isRecurring(payload): // see occurrences
		case now > 1 && !j.twins[payload]:
			j.violation("%s has %s of %s in %d places", r.verb, payload, queue, now)
		case now < 0:
			j.violation("%s takes %s of %s from where it was not", r.verb, payload, queue)
		case n > 0 && !slices.Contains(carried(r), payload):
			j.violation("%s makes %s of %s, which was never enqueued", r.verb, payload, queue)
		case n > 0 && j.known[payload] && !uniquely(r):
			j.violation("%s enqueues %s of %s again", r.verb, payload, queue)
		case n > 0 && j.refused[payload]:
			j.violation("%s enqueues %s of %s, whose producer got an error", r.verb, payload, queue)
		case n > 0:
			j.Enqueued++
			j.known[payload] = true
			j.unique[payload] = uniquely(r)
		case n < 0:
			j.leaves(r, queue, payload, -n, steps)
		}
	}
}

// leaves judges why a payload is in fewer places, and counts the outcomes. Equal
// ones may have different outcomes.
func (j *judge) leaves(r *request, queue, payload string, n int, steps map[*lane.Lane]*step) {
	for _, st := range steps {
		if st.is.Queue != queue {
			continue
		}
		for _, why := range st.gone(payload, n) {
			n--
			j.outcome(payload, why)
			switch why {
			case "finished":
				j.Finished++
			case "canceled", "deleted":
				j.Canceled++
			case "replaced":
				j.Replaced++
			}
		}
	}
	if n > 0 {
		j.violation("%s loses %s of %s", r.verb, payload, queue)
	}
}

// carried returns the payloads that a request enqueues.
func carried(r *request) (all []string) {
	switch r.verb {
	case "enqueue":
		return r.call.Rest()
	case "add":
		for _, task := range r.call.Tasks() {
			all = append(all, spec.ReadRecord(task.Record).Payload)
		}
	case "LPUSH":
		return r.args[1:]
	}
	return all
}

// uniquely reports whether a request enqueues a unique task.
func uniquely(r *request) bool {
	return slices.ContainsFunc(r.call.Tasks(), func(t calls.Task) bool { return t.Rule == "unique" })
}

// gone returns why up to n copies of a payload have gone from the lane: first the running ones, then the
// waiting ones. Copies without a reason must not be gone.
func (st *step) gone(payload string, n int) (why []string) {
	for _, id := range st.ended {
		if len(why) == n {
			return why
		}
		if st.was.Payload(id) == payload {
			if reason := st.goneProcess(id); reason != "" {
				why = append(why, reason)
			}
		}
	}
	if reason := st.goneWaiting(payload); reason != "" {
		for len(why) < n {
			why = append(why, reason)
		}
	}
	return why
}

// goneProcess returns why the payload of an ended attempt is gone: "" if it moved elsewhere.
func (st *step) goneProcess(id string) string {
	was := st.was
	payload, token, name := was.Payload(id), was.Token(id), was.Name(id)
	end, told := st.ends[id]
	told = told && end.token == token && was.Owner[id] == st.r.worker()
	_, blocks := was.Behind(name)
	switch {
	case told && end.verb == "done":
		if s := st.started[st.name(id)]; st.w != nil && s != nil && !s.ready {
			st.violation("attempt %s (%s) is done, but no handler returned nil", id, payload)
		}
		return "finished"
	case was.Stops(id):
		return "canceled"
	case told && end.verb == "drop":
		if !st.wasCanceled(id, token) {
			st.violation("attempt %s (%s) is dropped, but was not canceled", id, payload)
		}
		return "canceled"
	case blocks:
		return "replaced"
	}
	return ""
}

// goneWaiting returns why a payload that waited is gone.
func (st *step) goneWaiting(payload string) string {
	r, was := st.r, st.was
	waits := func(name string) bool {
		behind, is := was.Behind(name)
		return is && behind.Payload == payload || was.Run(name).Attempt == "" && was.Record(name).Payload == payload
	}
	switch r.verb {
	case "cancel":
		if r.call.Arg("payload") == payload {
			return "canceled"
		}
	case "delete":
		return "deleted"
	case "remove":
		if waits(r.call.Arg("name")) {
			return "canceled"
		}
	case "add":
		if slices.ContainsFunc(r.call.Tasks(), func(t calls.Task) bool { return waits(t.Name) }) {
			return "replaced"
		}
	default:
		if slices.ContainsFunc(st.ended, func(id string) bool { return waits(was.Name(id)) }) {
			return "replaced" // by the one that ran, which keeps its payload
		}
	}
	return ""
}

// name returns an attempt and its lane, since a worker may use the same id on several queues.
func (st *step) name(id string) string { return laneName(st.is.Queue, st.is.Failed) + " " + id }

func (st *step) wasCanceled(id string, token int64) bool {
	for _, by := range []string{st.was.Digest(id), st.was.Name(id)} {
		if by != "" && token <= st.cancels[st.is.Queue+" "+by] {
			return true
		}
	}
	return false
}

// rules judges everything except where payloads go.
func (st *step) rules() {
	st.is.Flaws(st.ms(), st.wrongly)
	lane.Tokens(st.was, st.is, st.began, st.wrongly)
	lane.Marks(st.was, st.is, st.wrongly)
	st.membership()
	st.returned()
	st.begun()
	st.order()
	st.turns()
	st.added()
	if st.w != nil {
		st.occurrences()
	}
	st.cancelLog()
}

// wrongly records a violation in the state after the request.
func (st *step) wrongly(format string, args ...any) {
	st.violation("%s: "+format, slices.Insert(args, 0, any(st.r.verb))...)
}

// membership: an evicted worker changes nothing and never comes back, unless it had begun to leave, and no
// worker with a current lease is evicted.
func (st *step) membership() {
	r, was, is, name := st.r, st.was, st.is, laneName(st.is.Queue, st.is.Failed)
	worker := r.worker()
	_, member := was.Workers[worker]
	if (r.verb == "start" || r.verb == "finish" || r.verb == "heartbeat") && !member && st.own() && st.changed() {
		st.violation("%s of %s, which isn't a member, changes %s", r.verb, worker, name)
	}
	if r.verb == "leave" && !member && st.own() && st.kind["state"] {
		st.left[name+" "+worker] = true  // of a join that the server has lost, or that hasn't arrived yet
		st.dead[name+" "+worker] = false // it was evicted before its leave arrived, and may join again after that
	}
	if !st.kind["workers"] {
		return
	}
	for w := range is.Workers {
		_, before := was.Workers[w]
		switch {
		case before:
		case r.verb != "join":
			st.violation("%s makes %s a member of %s", r.verb, w, name)
		case st.dead[name+" "+w] && !st.left[name+" "+w]: // the server may have lost the leave, and not the eviction before
			st.violation("%s was evicted from %s, but is a member again", w, name)
		}
	}
	switch r.verb {
	case "join", "start", "heartbeat":
		st.renewed[name+" "+worker] = st.ms()
		st.serves[name+" "+worker] = r.verb != "join"
		if !r.copy { // a copy makes it a member again if the server has lost the fence
			delete(st.left, name+" "+worker)
		}
		if r.verb == "join" && r.from != nil && !r.copy {
			st.homes[worker] = r.from
			st.asks[name+" "+worker] = true
			delete(st.leaving, name+" "+worker)
		}
	}
	for w := range was.Workers {
		if _, still := is.Workers[w]; still {
			continue
		}
		switch r.verb {
		case "leave":
			if w != worker {
				st.violation("%s leaves %s for %s", worker, name, w)
			}
			if int64(atoi(was.Rounds[w])) > r.call.Int("round") {
				st.violation("%s leaves %s by a request from before its last round", w, name)
			}
			st.left[name+" "+w] = true
		case "evict":
			// A server that has lost the leave evicts a worker that has left, and may come back. So may one that
			// never got the answer to its join: it starts anew.
			st.dead[name+" "+w] = st.serves[name+" "+w] && !st.left[name+" "+w]
			st.Evicted++
			if r.call.Arg("target") == "" {
				st.falseDeath(name, w)
			}
		default:
			st.violation("%s ends the membership of %s in %s", r.verb, w, name)
		}
	}
}

// own reports whether the request is to this lane, by its first key.
func (st *step) own() bool {
	queue, failed, _, _, _ := lane.Place(prefix, st.r.keys[0])
	return queue == st.is.Queue && failed == st.is.Failed
}

// changed reports whether the request has changed any value.
func (st *step) changed() bool {
	for key := range st.s.touched {
		queue, failed, kind, of, ok := lane.Place(prefix, key)
		if ok && queue == st.is.Queue && failed == st.is.Failed && !reflect.DeepEqual(st.was.Get(kind, of), st.is.Get(kind, of)) {
			return true
		}
	}
	return false
}

// falseDeath judges the eviction of a worker.
func (st *step) falseDeath(name, w string) {
	if st.w == nil {
		return
	}
	lease := st.w.opts.Lease.Milliseconds()
	// If the clock was set back, the silence seems shorter by that.
	if silent := st.ms() - st.renewed[name+" "+w]; silent+st.w.back.Milliseconds() < lease-2 {
		st.violation("%s is evicted from %s after %d ms of silence, but the lease is %d", w, name, silent, lease)
	}
	// Under an earlier id a process is dead, and may be evicted again if Redis has
	// lost writes. A worker whose join hasn't been answered doesn't know that it is a member. One that is leaving
	// sends no more heartbeats, and Redis may be slow to answer its leave.
	if p := st.homes[w]; p != nil && !p.excused() && p.is(w) && !st.left[name+" "+w] && !st.leaving[name+" "+w] && !st.asks[name+" "+w] {
		st.violation("%s of %s is evicted from %s, but lives", w, p.name, name)
	}
}

// returned: a task that a cancel covers isn't returned.
func (st *step) returned() {
	was, is := st.was, st.is
	for _, id := range st.ended {
		payload := was.Payload(id)
		back := st.places[is.Queue][payload] > 0 && !isRecurring(payload) // otherwise the next one waits, too
		if back {
			st.Returned++
		}
		if end := st.ends[id]; end.verb == "done" || !back || st.twins[payload] {
			continue
		}
		if was.Stops(id) {
			st.violation("%s puts back %s of %s, which is canceled", st.r.verb, payload, is.Queue)
		}
	}
}

// begun judges the started attempts.
func (st *step) begun() {
	r, was, is := st.r, st.was, st.is
	if len(st.began) == 0 {
		return
	}
	worker := r.worker()
	switch {
	case r.verb != "start":
		st.violation("%s starts attempts of %s", r.verb, is.Queue)
		return
	case r.call.Int("round") <= lane.Number(was.Rounds[worker]):
		st.violation("round %s of %s starts %d tasks of %s, but was not the first", r.call.Arg("round"), worker, len(st.began), is.Queue)
	case was.Paused():
		st.violation("%s starts tasks of %s, which is paused", worker, is.Queue)
	case len(was.Leaving) > 0:
		st.violation("%s starts tasks of %s while others are returned", worker, is.Queue)
	}
	for _, id := range st.began {
		payload, token := is.Payload(id), is.Token(id)
		if is.Owner[id] != worker {
			st.violation("%s starts attempt %s for %q", worker, id, is.Owner[id])
		}
		// Once Redis has lost a round, a late copy of it may start the same attempt again, while its handler runs.
		if s := st.started[st.name(id)]; s == nil || s.payload != payload || s.token != token {
			st.started[st.name(id)] = &start{payload: payload, digest: is.Digest(id), token: token, failed: is.Failed}
		}
		st.Starts++
		if st.starts[payload]++; st.starts[payload] > 1 {
			st.Extra++
		}
	}
}

// order: raw tasks are taken from the front of the list, and returned ones are there in the order they were started.
func (st *step) order() {
	r, was, is := st.r, st.was, st.is
	switch r.verb {
	case "evict", "leave":
		n := 0
		for _, id := range st.ended { // by token
			payload, name := was.Payload(id), was.Name(id)
			switch _, behind := was.Next[name]; {
			case st.places[is.Queue][payload] == 0 || behind:
			case name == "":
				n++
				if at := len(is.Waiting) - n; at < 0 || is.Waiting[at] != payload {
					st.violation("%s is not in its place when %s returns it to the front of %s", payload, r.verb, is.Queue)
					return
				}
			case is.Ready[name] != was.Token(id)-front:
				st.violation("%s has the place %d when %s returns it to %s", payload, is.Ready[name], r.verb, is.Queue)
				return
			}
		}
	case "start":
		if len(was.Crashes) > 0 || len(is.Crashes) > 0 {
			return // some are passed over
		}
		at := len(was.Waiting) - 1
		for _, id := range st.began {
			if is.Name(id) != "" {
				continue
			}
			if at < 0 || was.Waiting[at] != is.Process[id] {
				st.violation("%s of %s starts, but was not at the front", is.Process[id], is.Queue)
				return
			}
			at--
		}
	}
}

// front is what the place of a returned task is below its token.
const front = 1 << 52

// turns: named tasks start in the order of their places.
func (st *step) turns() {
	if st.r.verb != "start" {
		return
	}
	was, is, last := st.was, st.is, int64(math.MinInt64)
	for _, id := range st.began {
		place, ready := was.Ready[is.Name(id)]
		if !ready {
			continue // its time had come, or it was risky
		}
		if place < last {
			st.violation("%.60s of %s starts behind one that became ready later", is.Payload(id), is.Queue)
		}
		last = place
	}
	for name, place := range is.Ready {
		if before, ready := was.Ready[name]; ready && before == place && place < last {
			st.violation("%.60s of %s is passed over by one that became ready later", is.Record(name).Payload, is.Queue)
		}
	}
}

// cancelLog notes what is canceled.
func (st *step) cancelLog() {
	r, is := st.r, st.is
	switch {
	case r.verb == "cancel":
		st.cancels[is.Queue+" "+spec.Digest(r.call.Arg("payload"))] = is.Number("token")
	case r.verb == "remove" && r.call.Arg("how") == "canceled":
		st.cancels[is.Queue+" "+r.call.Arg("name")] = is.Number("token")
	}
}

// covered checks that each attempt that a cancel covers must stop, or has ended.
func (j *judge) covered(queue, payload string) {
	l, digest := j.lane(queue, false), spec.Digest(payload)
	for id := range l.Process {
		if l.Digest(id) == digest && l.Token(id) <= j.cancels[queue+" "+digest] && l.Working[l.Owner[id]][id] > 0 {
			j.violation("the cancel of %s has returned, but attempt %s isn't told to stop", payload, id)
		}
	}
}
