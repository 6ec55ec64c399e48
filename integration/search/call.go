package search

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/store"
)

// A query is a call of a script. Fields that it doesn't need are zero, so that equal calls compare equal.
type query struct {
	request
	task uint8     // to produce
	call canceling // of a cancel: where its page begins
}

// fences reports whether a call may remove a worker, for which Redis gives out a token.
func (q *query) fences() bool { return q.kind == toLeave || q.kind == toFail || q.kind == toSweep }

// A reply is the answer to a query, as far as it matters here.
type reply struct {
	answered
	answer answer
	given  uint8     // tokens
	logged uint8     // the token of a cancel; 0 is none
	call   canceling // where its next page begins; zero if there is none
}

// An answered is the kind of answer.
type answered uint8

const (
	granted answered = iota
	again            // the fence has risen; something is left
	refused          // EVICTED, STALE, DUPLICATE
)

// An outcome is the effect and the reply of a call.
type outcome struct {
	redis redis
	reply reply
}

// An asked is everything that an outcome depends on.
type asked struct {
	redis redis
	query query
}

// call makes the specification run a script, and records what the invariants need to know about that. Most
// calls equal an earlier one, whose outcome is reused.
func (m *model) call(s *state, q query) reply {
	was := s.redis
	o, known := m.outcomes[asked{was, q}]
	if !known {
		o = m.carryOut(&was, &q)
		m.outcomes[asked{was, q}] = o
	}
	s.redis = o.redis
	m.observe(s, &was, &q, &o.reply)
	return o.reply
}

func (m *model) carryOut(was *redis, q *query) (o outcome) {
	s := m.codec.store(was)
	verb, args := m.codec.request(was, q)
	said := s.Call(verb, spec.KeysOf(verb, queue, ""), argsOf(verb, args), now)
	given, _ := strconv.Atoi(s.Get(queue.Token()).(string))
	o.redis = m.codec.read(s, was, q)
	o.reply = m.codec.reply(said, was, q)
	o.reply.given = uint8(given - deposit - int(was.token))
	return o
}

// The arguments that verbs.go of the store calls shared.
const sharedArgs = "process working cancel wake keyed"

// values are arguments by name.
type values map[string][]string

// argsOf returns the arguments of a verb, in the order of the table. Missing ones are 0.
func argsOf(verb string, of values) (all []string) {
	for _, name := range strings.Fields(strings.Replace(store.VerbOf(verb).Args, "shared", sharedArgs, 1)) {
		name, repeated := strings.CutSuffix(name, "…")
		v, said := of[name]
		switch row := keys.Named(name); {
		case said || repeated:
			all = append(all, v...)
		case slices.Contains(strings.Fields(sharedArgs), name) && row != nil:
			all = append(all, row.Of(queue, ""))
		default:
			all = append(all, "0")
		}
	}
	return all
}

// request returns the verb of a query, and its arguments.
func (c *codec) request(was *redis, q *query) (verb string, args values) {
	worker := []string{workerID(int(q.worker))}
	number := func(n int) []string { return []string{strconv.Itoa(n)} }
	joined := number(int(q.asked)) // a token that was given before
	if q.asked >= was.fence {
		joined = []string{tokenText(was.token)}
	}
	round := number(int(q.number))
	switch q.kind {
	case toStep:
		args = c.round(q)
		args["worker"], args["round"], args["lease"] = worker, round, number(term)
		return "step", args
	case toJoin:
		return "join", values{"worker": worker, "lease": number(term), "asked": joined, "round": round}
	case toLeave:
		return "leave", values{"worker": worker, "round": round, "asked": joined}
	case toBeat:
		return "beat", values{"worker": worker, "lease": number(term), "grace": number(1)}
	case toSweep:
		return "sweep", values{"grace": number(1)}
	case toFail:
		return "fail", values{"worker": worker, "begin": number(1)}
	case toProduce:
		return c.product(q.task)
	case toCancelKey:
		return "cancel_key", values{"entry": {c.names[1]}}
	case toCancel:
		args = values{"payload": {string(c.scope.cancels)}, "left": number(-1), "after": {""}, "until": {""}}
		if q.call.begun {
			args["left"] = number(int(q.call.left))
			args["since"] = number(deposit + int(was.token) - int(q.call.started))
			for name, at := range map[string]uint8{"after": q.call.after, "until": q.call.until} {
				if at > 0 {
					args[name] = []string{c.names[0] + ":" + c.entryName(int(at)-1)}
				}
			}
		}
		return "cancel", args
	}
	panic("there is no such query")
}

// round returns the arguments of a step, except the worker's.
func (c *codec) round(q *query) values {
	var outcomes, runs, starts []string
	ends, runners := 0, 0
	for _, e := range q.ends {
		if e.verb == none {
			continue
		}
		word := ""
		if e.verb == retry {
			word = strconv.Itoa(term)
		}
		outcomes = append(outcomes, processID(e.process), tokenText(e.token), e.verb.String(), word)
		ends++
	}
	for slot, names := range q.runs {
		for name, covered := range names {
			if covered {
				runs = append(runs, c.names[name], processID(processOf(int(q.worker), slot)))
				runners++
			}
		}
	}
	said := "0"
	if q.said > 0 {
		said = tokenText(q.said)
	}
	if q.start > 0 {
		starts = []string{processID(q.start)}
	}
	return values{
		"outcomes": {strconv.Itoa(ends)}, "entries": {strconv.Itoa(ends)}, "stopping": {strconv.Itoa(runners)},
		"seen": {tokenText(q.seen)}, "head": {""}, "tail": {""}, "last": {""},
		"lists": slices.Concat(outcomes, []string{said}, runs, starts),
	}
}

// product returns the call that produces a task.
func (c *codec) product(task uint8) (verb string, args values) {
	payload := []string{c.payloads[task]}
	switch t := c.scope.tasks[task-1]; {
	case t.added:
		return "add", values{"salt": {salt}, "task": {"0", c.payloads[task]}}
	case t.key:
		when := "always"
		if t.unique {
			when = "unique"
		}
		return "put", values{"entry": {theKey}, "payload": payload, "when": {when}, "keep": {strconv.Itoa(bit(t.keep))}, "card": {""}}
	}
	return "enqueue", values{"payload": payload}
}

// reply parses an answer.
func (c *codec) reply(said any, was *redis, q *query) (r reply) {
	if why, is := said.(spec.Refusal); is {
		if word, _, _ := strings.Cut(string(why), " "); !slices.Contains([]string{"EVICTED", "STALE", "DUPLICATE"}, word) {
			panic(fmt.Sprint("the specification refuses: ", why))
		}
		r.answered, r.answer.refused = refused, true
		return r
	}
	of := map[string]any{}
	if name, read := verbNames[q.kind]; read {
		all, _ := said.([]any) // a single value has no names
		for i, name := range strings.Fields(store.VerbOf(name).Reply)[:len(all)] {
			of[name] = all[i]
		}
	}
	switch q.kind {
	case toStep:
		r.answer = c.answer(of, was, q)
	case toJoin:
		if said == 0 {
			r.answered = again
		}
	case toLeave:
		if of["left"] != 0 {
			r.answered = again
		}
	case toCancelKey:
		r.logged = tokenOf(floatOf(of["token"]))
	case toCancel:
		r.logged = tokenOf(floatOf(of["token"]))
		r.call.left = int8(of["left"].(int))
		r.call.after, r.call.until = c.place(of["after"], was), c.place(of["until"], was)
		r.call.begun = r.call.left != 0 || r.call.until != 0
		if !r.call.begun {
			r.call = canceling{}
		}
	}
	return r
}

var verbNames = map[kind]string{toStep: "step", toLeave: "leave", toBeat: "beat", toSweep: "sweep", toFail: "fail", toCancel: "cancel", toCancelKey: "cancel_key"}

// place returns 1 + the number of an entry in contents; 0 for none.
func (c *codec) place(member any, was *redis) uint8 {
	name, ok := strings.CutPrefix(member.(string), c.names[0]+":")
	if !ok {
		return 0
	}
	return uint8(1 + c.entryOf(name, was))
}

// answer parses the answer to a step.
func (c *codec) answer(of map[string]any, was *redis, q *query) (a answer) {
	for i, word := range of["settled"].([]any) {
		at := i
		for q.ends[at].verb == none {
			at++
		}
		a.settled[at] = map[any]settled{"ok": ok, "canceled": wasCanceled, "gone": gone}[word]
		if a.settled[at] == unsettled {
			panic(fmt.Sprint("an end is answered ", word))
		}
	}
	if started := of["started"].([]any); len(started) > 0 {
		a.task, a.token = c.task(started[0].(string)), tokenOf(floatOf(started[1]))
		if more, is := started[2].([]any); is && more[0] != "" {
			a.entry = uint8(1 + c.entryOf(more[0].(string), was))
		}
		if value, is := started[2].(string); is && value != "" {
			a.entry = uint8(1 + c.addedOf(value))
		}
	}
	if plain := of["plain"].([]any); len(plain) > 0 {
		a.task, a.token = c.task(plain[0].(string)), tokenOf(floatOf(of["token"]))
	}
	cancels := of["cancels"].([]any)
	for i := 0; i < len(cancels); i += 2 {
		a.cancels[slices.Index(c.names[:], cancels[i].(string))] = tokenOf(floatOf(cancels[i+1]))
	}
	a.seen = tokenOf(floatOf(of["seen"]))
	return a
}

func floatOf(n any) float64 {
	switch n := n.(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	}
	panic(fmt.Sprintf("%v is no number", n))
}
