package spec

import (
	"regexp"
	"strings"

	"github.com/worqr/worqr/internal/store"
)

func init() { verbs["step"] = of(step) }

// A round is one step of a worker in progress.
type round struct {
	*queue
	worker, working string
	number, last    int64
	most            int64 // deaths
	solo            bool
	holds           bool // something, if that's known
	keep, ahead     int
	failed          *lane // nil in a failed queue
	ids             []string
	token           int64
	started         []any // payload, token and details of started tasks
	plain           []any
	trouble         string
	gaveUp          bool // something failed
	idlers          int
	final, first    int // indexes of ids: after the last to start; the next
	skipped, moved  int
	empty           bool
}

const odd = "WRONGTYPE a key of the queue or of the process is of another type"

// An argument list is parsed from its front.
type arguments []string

func (a *arguments) word() string {
	w := (*a)[0]
	*a = (*a)[1:]
	return w
}

func (a *arguments) int() int64 { n, _ := integer(a.word()); return n }
func (a *arguments) count() int { return int(a.int()) }

func step(q *queue, c store.Call) any {
	args := arguments(c.Args[5:]) // in the order of the table in the script's header
	r, says := newRound(q, &args)
	if _, member := q.score(q.workers, r.worker); !member && q.has(StepMembers) {
		return evicted
	}
	r.last, _ = integer(q.word(q.rounds, r.worker))
	if r.number < r.last-3 && q.has(Window) {
		return Refusal("STALE later rounds have been answered")
	}
	r.token = q.givesTokens()
	q.mustBeIntact()
	r.holds = q.size(r.working) > 0
	if says.outcomes+says.ends > 0 {
		_, r.holds = q.score(r.working, args[0])
	}

	overtaken := r.number < r.last
	suspecting := r.renew(says.lease, overtaken)
	settled := r.settleAll(&args, says.outcomes, says.entries)
	strange := r.endAll(&args, says.ends, says.adds)
	r.hear(&args, &says)
	recorded := r.recorded(&args, says.heard)
	r.ids = args

	open, again := true, false
	if suspecting && q.has(ReturnsFirst) {
		open, again = q.goOn()
	}
	open = open && !q.isPaused()
	needed, before := len(r.ids)-r.ahead, r.token
	r.startAll(open, needed)
	if r.token > before {
		q.put(q.token, text(r.token))
	}
	dropped := r.drop()
	r.hold(before)
	q.trimLog()

	more := r.leaves(open)
	again = again || more && r.number == r.last || r.moved > 0 && !r.empty || overtaken && len(r.started)/3 < needed
	rank, due := -1, int64(-1)
	if says.idle && len(r.started)/3+len(r.plain) < needed && !again {
		rank, due = r.rest(open)
	}
	r.alert(more)
	cancels, seen, unheard := r.news(says.seen, overtaken)
	hungry := r.idlers
	if more {
		hungry = -1
	}
	return []any{settled, strange, r.started, r.plain, r.token, cancels, seen, rank, hungry, bit(again || unheard), r.trouble, recorded, due, r.last, dropped, nil, nil, r.now}
}

// A preface holds the arguments of a round before its lists, apart from those kept in round.
type preface struct {
	lease             int64
	seen, issued      int64 // tokens
	idle              bool
	outcomes, entries int // how many; and how many of them may be entries
	ends, adds        int // without a result; and how many of them are added tasks
	runs, heard       int
}

// newRound parses the arguments before the lists.
func newRound(q *queue, args *arguments) (*round, preface) {
	r, says := &round{queue: q}, preface{}
	r.worker, r.number = args.word(), args.int()
	says.lease, says.seen, says.issued, says.idle = args.int(), args.int(), args.int(), args.word() == "1"
	r.most, r.solo, r.keep = args.int(), args.word() == "1", args.count()
	head, tail, wakeFailed := args.word(), args.word(), args.word()
	if head != "" {
		r.failed = failedQueue(head, tail, wakeFailed)
	}
	args.word() // the channel of finished tasks
	says.outcomes, says.entries, says.ends, says.adds = args.count(), args.count(), args.count(), args.count()
	says.runs, says.heard, r.ahead = args.count(), args.count(), args.count()
	*args = (*args)[3:] // which entries it passed over: it reads them again
	r.working = q.working + r.worker
	return r, says
}

// renew removes the worker from the idle workers and renews its lease. It reports whether there are
// suspects.
func (r *round) renew(lease int64, overtaken bool) (suspecting bool) {
	q := r.queue
	if !overtaken && q.is(q.idle, "zset") {
		q.remove(q.idle, r.worker)
	}
	if !overtaken || !q.has(OvertakenRenews) {
		q.set(q.rounds, r.worker, r.number)
	}
	suspecting = q.suspecting()
	q.remove(q.suspects, r.worker)
	q.add(q.workers, r.worker, q.deadline(lease))
	if q.is(q.idle, "zset") {
		r.idlers = q.size(q.idle)
	}
	return suspecting
}

// settleAll settles the processes with an outcome; the first ones may be entries.
func (r *round) settleAll(args *arguments, outcomes, entries int) []any {
	settled := []any{}
	for i := range outcomes {
		settled = append(settled, r.settle(args.word(), args.int(), args.word(), args.word(), i < entries && r.keyed))
	}
	return settled
}

// endAll finishes the processes without a result. It returns the index of each that it couldn't
// finish, and why.
func (r *round) endAll(args *arguments, ends, adds int) []any {
	strange := []any{}
	for i := range ends {
		if what := r.settle(args.word(), args.int(), "finish", "", i < adds && r.keyed); what != "ok" {
			strange = append(strange, i, what)
		}
	}
	return strange
}

// recorded returns the tokens of the cancels that the worker has received.
func (r *round) recorded(args *arguments, heard int) []any {
	tokens := []any{}
	for range heard {
		t, _ := r.logged(args.word())
		tokens = append(tokens, t)
	}
	return tokens
}

// startAll starts due entries of the schedule, then added tasks and the list. It prefetches nothing
// while another worker could start it, or while there are crash counts.
func (r *round) startAll(open bool, needed int) {
	wanted := len(r.ids)
	if r.counting || r.idlers > 0 {
		wanted = needed
	}
	r.final = wanted
	if r.repeats() {
		r.repeat()
	} else if open && wanted > 0 {
		r.fromEntries()
		r.fromAdded()
		r.fromList()
	}
}

// leaves reports whether tasks are left that other workers can start.
func (r *round) leaves(open bool) bool {
	return open && (!r.empty && r.waits() > 0 || r.adding && r.Store.entries(r.added) > 0 || r.scheduled && r.due() > r.skipped)
}

// drop trims the failed queue if something was added to it.
func (r *round) drop() (dropped int) {
	q := r.queue
	switch {
	case !r.gaveUp:
	case r.failed == nil:
		return q.trim(&q.lane, aside, r.keep)
	case r.keep > 0 && q.is(r.failed.workers, "zset") && len(q.between(r.failed.workers, float64(q.now), inf)) == 0:
		return q.trim(r.failed, -inf, r.keep)
	}
	return 0
}

// alert wakes workers: one to start the tasks that are left, one to keep the time, and workers of
// the failed queue.
func (r *round) alert(more bool) {
	q := r.queue
	if more && r.idlers > 0 {
		q.wakes(q.idle, q.wake, 1)
	}
	if q.scheduled {
		if keeps, someone := q.keeper(&q.lane); someone && (!keeps || q.sooner(&q.lane)) {
			q.ring(&q.lane)
		}
	} else if q.sooner(&q.lane) {
		q.ring(&q.lane)
	}
	if r.failed != nil && r.failed.ready > 0 {
		q.wakes(r.failed.idle, r.failed.wake, r.failed.ready)
	}
}

// hear records which processes still run although a cancel covers them, and up to which cancel that
// list is complete.
func (r *round) hear(args *arguments, says *preface) {
	said := args.int()
	if says.issued > r.token { // Redis has lost tokens
		said, says.seen = 0, 0
	}
	for range says.runs {
		name, id := args.word(), args.word()
		begun, held := r.score(r.working, id)
		if canceled, ok := r.score(r.canceled, name); held && ok && begun <= canceled && r.is(r.stopping, "zset") {
			r.add(r.stopping, StoppingAs(name, int64(begun), id), 0)
		}
	}
	if !r.has(SaidTold) {
		said = r.token
	}
	if r.canceling && said > 0 && r.is(r.holders, "zset") {
		if was, known := r.score(r.holders, r.worker); (known || !r.has(SaidHolder)) && float64(said) > was {
			r.add(r.holders, r.worker, said)
		}
	}
}

// repeats reports whether a round only reports what was started before: it's a copy of the last
// round, or the last round has overtaken it.
func (r *round) repeats() bool {
	switch {
	case r.number < r.last:
		return r.has(OvertakenStarts)
	case r.number == r.last:
		return r.has(RepeatStarts)
	}
	return false
}

// logged returns the token of a cancel in the log.
func (r *round) logged(name string) (int64, bool) {
	if !r.is(r.cancel+name, "hash") {
		return 0, false
	}
	return integer(r.word(r.cancel+name, "token"))
}

var reasoned = regexp.MustCompile(`(?s)^([a-zA-Z]+):([0-9]*):(.*)$`)

// hold updates whether the worker is a holder. No cancel up to the token before covers anything
// that a new holder holds.
func (r *round) hold(before int64) {
	known, there := false, r.is(r.holders, "zset")
	if there {
		_, known = r.score(r.holders, r.worker)
	}
	switch {
	case r.token > before:
		if there && !r.holds && !known && r.has(BeginsHolding) {
			r.add(r.holders, r.worker, before)
		}
		r.holds = true
	default:
		if r.holds = r.exists(r.working); !r.holds && r.has(EndsHolding) {
			r.holdsNothing(r.worker)
		}
	}
}

// settle ends one process with the worker's outcome.
func (r *round) settle(id string, started int64, verb, word string, keyed bool) string {
	if score, ok := r.score(r.working, id); !ok && r.has(EndsHeld) || ok && score != float64(started) && r.has(EndsToken) {
		return "gone"
	}
	f := done
	switch verb {
	case "finish", "drop":
		field := map[string]string{"finish": "finished", "drop": "stopped"}[verb]
		if _, ok := r.finish(r.working, id, started, field, word, keyed); !ok {
			f = stuck
		}
	case "stop":
		f = r.giveBack(r.working, id, started, 0, keyed)
	case "retry":
		delay, failure, _ := strings.Cut(word, ":")
		f = r.putOff(r.working, id, started, number(delay), 1, failure, keyed)
	case "snooze":
		f = r.putOff(r.working, id, started, number(word), 0, "", keyed)
	default:
		m := reasoned.FindStringSubmatch(word)
		f = r.giveUp(id, started, m[1], number(m[2]), m[3], keyed)
	}
	switch f {
	case stuck:
		r.trouble = odd
		return "refused"
	case gone:
		return "canceled"
	}
	return "ok"
}

// giveUp moves the task of a process to the failed queue. In a failed queue, it sets the task
// aside.
func (r *round) giveUp(id string, started int64, kind string, due int64, reason string, keyed bool) fate {
	if r.failed != nil && !r.buries(r.failed) {
		return stuck
	}
	payload, run, f := r.takeUnlessCanceled(r.working, id, started, keyed, true)
	if f != done {
		return f
	}
	r.gaveUp = true
	if !isKey(run.entry) {
		run.died = r.crashes(payload)
		r.forgetCrashes(payload)
	}
	switch {
	case r.failed != nil:
		r.addFailed(r.failed, r.worker, id, failure{payload, run.entry, kind, reason, run.tried, run.died, run.card, due})
		r.clear(r.working, id, run.entry)
		end := store.EndFailed
		if kind == string(store.Expired) {
			end = store.EndExpired
		}
		r.keepResult(run.entry, run.card, end, reason, "")
	case run.entry != "":
		r.remove(r.working, id)
		r.returned(run.entry, id, payload, aside+r.now, run.tried, run.died, run.card)
	default:
		r.clear(r.working, id, "")
		r.putAside("r:"+id, payload, run.tried, run.died)
	}
	return done
}

// repeat reports what this round or an earlier one has started. It starts nothing: a copy may
// arrive when nobody is waiting for its answer anymore.
func (r *round) repeat() {
	for _, id := range r.ids {
		token, ok := r.score(r.working, id)
		if !ok {
			continue
		}
		run, readable := r.runs(id, r.keyed)
		if !readable || !r.is(r.process+id, "list") || r.length(r.process+id) == 0 {
			return
		}
		held := r.items(r.process + id)
		payload := held[len(held)-1]
		r.name(payload, run.sum)
		if !isKey(run.entry) {
			run.died = r.crashes(payload)
		}
		failed := ""
		if run.entry != "" && run.value == "" {
			failed, _ = r.field(r.entry+run.entry, "error")
		}
		r.tell(payload, int64(token), run.entry, run.tried, run.died, details{card: run.card, failure: failed, value: run.value})
	}
}

// rest adds the worker to the idle workers. If no other worker keeps the time, this one does.
func (r *round) rest(open bool) (rank int, due int64) {
	score, due := r.now, int64(-1)
	if keeps, _ := r.keeper(&r.lane); r.scheduled && !keeps {
		score += clock
		r.earlier, r.lane.first = false, 0
		if at, ok := r.next(&r.lane); open && ok {
			due = min(max(at*1000-r.micros, 0), 3_600_000_000)
		}
	}
	if !r.is(r.idle, "zset") {
		return -1, due
	}
	r.add(r.idle, r.worker, score)
	return r.rank(r.idle, r.worker), due
}

// news returns the cancels that the worker hasn't received.
func (r *round) news(seen int64, overtaken bool) (cancels []any, last int64, more bool) {
	cancels = []any{}
	if overtaken && r.has(OvertakenTells) || !r.canceling {
		return cancels, seen, false
	}
	if !r.holds {
		return cancels, r.token, false
	}
	since := r.between(r.canceled, float64(seen+1), float64(r.token))
	since = since[:min(len(since), 100)]
	for _, c := range since {
		cancels = append(cancels, c.name, int64(c.score))
		seen = int64(c.score)
	}
	return cancels, seen, len(since) == 100
}
