package simulation

import (
	"maps"
	"reflect"
	"slices"

	"github.com/worqr/worqr/integration/invariants"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/store"
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
			case "canceled":
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
func carried(r *request) []string {
	switch r.verb {
	case "enqueue", "enqueue_once":
		return r.call.Rest()
	case "add":
		var all []string
		for task := range slices.Chunk(r.call.Rest(), 2) { // card and payload
			all = append(all, task[len(task)-1])
		}
		return all
	case "put":
		return []string{r.call.Arg("payload")}
	case "LPUSH":
		return r.args[1:]
	}
	return nil
}

// uniquely reports whether a request enqueues a unique task.
func uniquely(r *request) bool { return r.verb == "put" && r.call.Arg("when") == string(store.Unique) }

// gone returns why up to n copies of a payload have gone from the lane: first the running ones, then the
// waiting ones. Copies without a reason must not be gone.
func (st *step) gone(payload string, n int) (why []string) {
	for _, id := range st.ended {
		if len(why) == n {
			return why
		}
		if st.was.Process[id] == payload {
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

// goneProcess returns why the payload of an ended process is gone: "" if it moved
// elsewhere.
func (st *step) goneProcess(id string) string {
	was := st.was
	payload, token, e := was.Process[id], was.TokenOf(id), was.Entries[id]
	end, told := st.ends[id]
	told = told && end.token == token && was.Owner[id] == st.r.worker()
	switch {
	case told && end.verb == "finish":
		if s := st.started[id]; st.w != nil && s != nil && !s.ready {
			st.violation("process %s (%s) is finished, but no handler returned nil", id, payload)
		}
		return "finished"
	case was.Covered(id, token):
		return "canceled"
	case told && end.verb == "drop":
		if !st.wasCanceled(id, token) {
			st.violation("process %s (%s) is dropped, but was not canceled", id, payload)
		}
		return "canceled"
	case e != "" && st.places[st.is.Queue][was.Entry[e]["payload"]] > 0: // it was blocked
		return "replaced"
	}
	return ""
}

// goneWaiting returns why a payload that waited is gone.
func (st *step) goneWaiting(payload string) string {
	r, was := st.r, st.was
	switch r.verb {
	case "cancel":
		if r.call.Arg("payload") == payload {
			return "canceled"
		}
		return ""
	case "delete":
		return "canceled"
	}
	for e, fields := range was.Entry {
		switch {
		case fields["payload"] != payload:
		case (r.verb == "remove" || r.verb == "cancel_key") && r.call.Arg("entry") == e:
			return "canceled"
		case r.verb == "put" && r.call.Arg("entry") == e:
			return "replaced"
		case slices.Contains(st.ended, fields["process"]) && st.places[st.is.Queue][was.Process[fields["process"]]] > 0:
			return "replaced"
		}
	}
	if r.verb == "remove" || r.verb == "cancel_key" {
		for _, w := range was.Waiters() {
			if w.Entry == r.call.Arg("entry") && w.Payload == payload {
				return "canceled"
			}
		}
	}
	return ""
}

func (st *step) wasCanceled(id string, token int64) bool {
	return slices.ContainsFunc(st.was.Names(id), func(name string) bool { return token <= st.cancels[st.is.Queue+" "+name] })
}

// rules judges everything except where payloads go.
func (st *step) rules() {
	invariants.State(st.is, st.kind, st.wrongly)
	invariants.Tokens(st.was, st.is, st.began, st.wrongly)
	st.membership()
	st.returned()
	st.begun()
	st.order()
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

// membership: an evicted worker changes nothing and never comes back, and no
// worker with a current lease is evicted.
func (st *step) membership() {
	r, was, is, name := st.r, st.was, st.is, laneName(st.is.Queue, st.is.Failed)
	worker := r.worker()
	_, member := was.Workers[worker]
	if (r.verb == "step" || r.verb == "beat") && !member && st.own() && st.changed() {
		st.violation("%s of %s, which isn't a member, changes %s", r.verb, worker, name)
	}
	if r.verb == "leave" && !member && st.own() && st.kind["token"] {
		st.left[name+" "+worker] = true // of a join that the server has lost, or that hasn't arrived yet
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
		case st.dead[name+" "+w]:
			st.violation("%s was evicted from %s, but is a member again", w, name)
		}
	}
	switch r.verb {
	case "join", "step", "beat":
		st.renewed[name+" "+worker] = st.ms()
		if !r.copy { // a copy makes it a member again if the server has lost the fence
			delete(st.left, name+" "+worker)
		}
		if r.verb == "join" && r.from != nil && !r.copy {
			st.homes[worker] = r.from
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
		case "fail", "beat", "sweep":
			// A server that has lost the leave evicts a worker that has left, and may come back.
			st.dead[name+" "+w] = !st.left[name+" "+w]
			st.Evicted++
			if r.verb != "fail" {
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
	// A copy may judge once more if the clock of Redis was set back by about as long as it was in flight: it
	// looks like one that is in time.
	if st.r.copy && st.r.verb == "beat" && st.w.back > 0 {
		if right := st.r.call.Int("judge") - st.ms(); right <= 2*st.w.opts.beat().Milliseconds() {
			return
		}
	}
	// Under an earlier id a process is dead, and may be evicted again if Redis has
	// lost writes. A worker that is leaving sends no more heartbeats, and Redis may be slow to answer its leave.
	if p := st.homes[w]; p != nil && !p.excused() && p.is(w) && !st.left[name+" "+w] && !st.leaving[name+" "+w] {
		st.violation("%s of %s is evicted from %s, but lives", w, p.name, name)
	}
}

// returned: a task that a cancel covers isn't returned.
func (st *step) returned() {
	was, is := st.was, st.is
	for _, id := range st.ended {
		payload, token := was.Process[id], was.TokenOf(id)
		back := st.places[is.Queue][payload] > 0 && !isRecurring(payload) // otherwise the next one waits, too
		if back {
			st.Returned++
		}
		if end := st.ends[id]; end.verb == "finish" || !back {
			continue
		}
		if was.Covered(id, token) {
			st.violation("%s puts back %s of %s, which is canceled", st.r.verb, payload, is.Queue)
		}
	}
}

// begun judges the started processes.
func (st *step) begun() {
	r, was, is := st.r, st.was, st.is
	if len(st.began) == 0 {
		return
	}
	worker := r.worker()
	switch {
	case r.verb != "step":
		st.violation("%s starts processes of %s", r.verb, is.Queue)
		return
	case r.call.Int("round") <= int64(atoi(was.Rounds[worker])):
		st.violation("round %s of %s starts %d processes of %s, but was not the first", r.call.Arg("round"), worker, len(st.began), is.Queue)
	case was.Paused:
		st.violation("%s starts processes of %s, which is paused", worker, is.Queue)
	}
	for _, id := range st.began {
		payload, token := is.Process[id], is.TokenOf(id)
		if is.Owner[id] != worker {
			st.violation("%s starts process %s for %q", worker, id, is.Owner[id])
		}
		st.started[id] = &start{payload: payload, token: token, failed: is.Failed}
		st.Starts++
		if st.starts[payload]++; st.starts[payload] > 1 {
			st.Extra++
		}
	}
}

// order: tasks are taken from the front of the list, and returned ones are there
// in the order they were started.
func (st *step) order() {
	r, was, is := st.r, st.was, st.is
	switch r.verb {
	case "beat", "sweep", "fail", "leave":
		n := 0
		for _, id := range st.ended { // by token
			payload := was.Process[id]
			if was.Entries[id] != "" || st.places[is.Queue][payload] == 0 {
				continue
			}
			n++
			if at := len(is.Waiting) - n; at < 0 || is.Waiting[at] != payload {
				st.violation("%s is not in its place when %s returns it to the front of %s", payload, r.verb, is.Queue)
				return
			}
		}
	case "step":
		if len(was.Ledger) > 0 || len(is.Ledger) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(st.ends)), func(e end) bool { return e.verb == "stop" }) {
			return // some are returned before, or are passed over
		}
		for _, mark := range was.Suspects {
			if mark <= 0 {
				return
			}
		}
		at := len(was.Waiting) - 1
		for _, id := range st.began {
			if is.Entries[id] != "" {
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

// cancelLog: a cancel has ended only when nothing that it covers runs anymore.
func (st *step) cancelLog() {
	r, is := st.r, st.is
	switch {
	case r.verb == "cancel":
		st.cancels[is.Queue+" "+lane.Digest(r.call.Arg("payload"))] = is.Token
	case r.verb == "cancel_key":
		st.cancels[is.Queue+" "+r.call.Arg("entry")] = is.Token
	}
	if st.kind["canceled"] {
		invariants.Canceled(st.was, is, func(id string) bool { return st.revived[id] }, st.wrongly) // whose worker may have ended it before, and know nothing of it
	}
}
