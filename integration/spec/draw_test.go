package spec

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/store"
)

// A drawing draws the requests of one sequence.
type drawing struct {
	*rand.Rand
	now   int64
	ids   int
	round map[string]int
	large bool     // one of the payloads is
	keys  []string // entries of added tasks
}

func (d *drawing) of(words ...string) string { return words[d.IntN(len(words))] }

func (d *drawing) worker() string  { return d.of(workers...) }
func (d *drawing) payload() string { return d.of("a", "b", "c", last[d.large]) }

// entry draws an entry, sometimes that of an added task.
func (d *drawing) entry() string {
	if len(d.keys) > 0 && d.IntN(3) == 0 {
		return d.keys[d.IntN(len(d.keys))]
	}
	return d.of("k:x", "k:y", "k:z")
}

// last is the last of the payloads.
var last = map[bool]string{false: "d", true: strings.Repeat("d", store.Large+1)}

// draw draws a request, including invalid ones: of workers that aren't members, of old rounds, with wrong
// tokens, repeated.
func (d *drawing) draw(s *scene) request {
	d.now += int64(d.IntN(4)) * 500
	q := queue_
	on := func(verb string, args ...any) request {
		return d.call(verb, append([]any{q.Process(""), q.Working(""), q.Cancel(""), q.Wake(""), q.Keyed("")}, args...)...)
	}
	head, tail := q.Failed().Around()
	if d.IntN(12) == 0 {
		return d.damage(s)
	}
	switch n := d.IntN(112); {
	case n >= 100:
		return d.add()
	case n < 10:
		args := []any{q.Wake(""), q.Channel(keys.KindEnqueue), d.payload()}
		if d.IntN(2) == 0 {
			args = append(args, d.payload(), d.payload())
		}
		return d.call("enqueue", args...)
	case n < 16:
		p := d.payload()
		return on("put", "u:"+digest(p), p, 0, "unique", 0, 0, q.Channel(keys.KindEnqueue), "", 0, 0)
	case n < 18:
		return d.call("enqueue_once", q.Wake(""), q.Channel(keys.KindEnqueue), 60_000, d.payload())
	case n < 26:
		return d.call("join", d.worker(), d.IntN(3)*2000, d.IntN(20), 1+d.IntN(2)*d.IntN(4))
	case n < 56:
		return on("step", d.step(s.held, head, tail)...)
	case n < 64:
		return on("beat", d.worker(), d.IntN(3)*2000, 1000, d.now+int64(d.IntN(3)-1)*500)
	case n < 66:
		return on("sweep", 1000)
	case n < 68:
		return on("leave", d.worker(), d.IntN(20), d.IntN(20))
	case n < 72:
		return on("fail", d.worker(), d.of("0", "1"))
	case n < 78:
		p := d.payload()
		return on("cancel", q.Channel(keys.KindCancel), p, []int{-1, -1, -1, 2, 1, 0}[d.IntN(6)], d.IntN(20), d.of("", "", digest("a")+":k:x"), d.of("", digest("a")+":k:y", digest("b")+":k:x", digest("b")+":k:y"))
	case n < 81:
		return on("cancel_key", d.entry())
	case n < 92:
		at, p := d.now+int64(d.IntN(5)-2)*700, d.payload()
		return on("put", d.entry(), p, at*int64(d.IntN(2)), d.of("always", "never", "later", "earlier"), d.IntN(2), d.IntN(2), q.Channel(keys.KindEnqueue), d.card(), max(d.IntN(4)-2, 0), max(d.IntN(4)-2, 0)*30_000)
	case n < 94:
		return on("remove", d.entry())
	case n < 95:
		return request{verb: "SET", args: []any{q.Paused(), 1}}
	case n < 97:
		return on("resume")
	case n < 98:
		return on("delete", q.Channel(keys.KindDelete), d.IntN(2))
	}
	return on("requeue", head, tail, q.Channel(keys.KindEnqueue), fmt.Sprintf("k:p%d", 1+d.IntN(d.ids+1)), fmt.Sprintf("k:p%d", 1+d.IntN(d.ids+1)))
}

// call returns a call of a verb, with one of a few nonces.
func (d *drawing) call(verb string, args ...any) request {
	return request{verb, d.now, KeysOf(verb, queue_, d.of("1", "2", "3")), args}
}

// salt is the same for all added tasks.
const salt = "000000000000a"

// card draws a card: of a task that expires soon, of one that keeps its result, or none.
func (d *drawing) card() string {
	return d.of("", "0", fmt.Sprintf("1%016d", d.now+int64(d.IntN(4)-1)*700), "40000060000h1:av1:b")
}

// add draws a call that adds tasks.
func (d *drawing) add() request {
	q := queue_
	args := []any{q.Wake(""), q.Channel(keys.KindEnqueue), q.Keyed(""), max(d.IntN(5)-3, 0) * 60_000, salt}
	for i := range 1 + d.IntN(3) {
		p := d.payload()
		if d.IntN(12) == 0 {
			p = strings.Repeat("e", 16<<10+1)
		}
		card := d.card()
		if card == "" {
			card = "0"
		}
		args = append(args, card, p)
		if key, ok := keys.AddedKey(fmt.Sprintf("%d-%d", d.now, i), salt); ok {
			d.keys = append(d.keys, "k:"+key)
		}
	}
	return d.call("add", args...)
}

// step draws a round.
func (d *drawing) step(held []process, head, tail string) []any {
	worker := d.worker()
	if d.round == nil {
		d.round = map[string]int{}
	}
	number := d.round[worker] + 1
	if d.IntN(8) == 0 {
		number -= d.IntN(4) // again, overtaken, or too late
	}
	d.round[worker] = max(d.round[worker], number)
	var outcomes, ends []any
	adds := 0
	for _, p := range held {
		if p.worker != worker && d.IntN(10) > 0 || d.IntN(3) == 0 {
			continue
		}
		if d.IntN(10) == 0 {
			p.token++
		}
		verb := d.of("finish", "drop", "stop", "retry", "snooze", "fail")
		word := map[string]string{"finish": d.of("", "=result", "#70000:00ff"), "retry": d.of("0", "900", "900:failed", "0:"), "snooze": d.of("0", "900"), "fail": d.of("failed::reason", fmt.Sprintf("failed:%d:reason", d.now))}[verb]
		if p.added && verb == "finish" && word == "" {
			ends, adds = append(ends, p.id, p.token), adds+1
			continue
		}
		outcomes = append(outcomes, p.id, p.token, verb, word)
	}
	if d.IntN(6) == 0 {
		ends = append(ends, fmt.Sprint("p", d.ids+50), 1) // it doesn't exist
	}
	var starts []any
	for range d.IntN(4) {
		d.ids++
		starts = append(starts, fmt.Sprint("p", d.ids))
	}
	issued := d.IntN(40)
	said := []any{d.IntN(issued + 1)}
	for range d.IntN(3) {
		if len(held) > 0 {
			said = append(said, d.of(digest("a"), digest("b"), "k:x"), held[d.IntN(len(held))].id)
		}
	}
	heard := []any{}
	for range d.IntN(2) {
		heard = append(heard, digest(d.payload()))
	}
	all := []any{
		worker, number, 2000 * d.IntN(3), d.IntN(min(issued, 4) + 1), issued, d.IntN(2), []int{0, 1, 2, 3}[d.IntN(4)], d.IntN(2), 3,
		head, tail, queue_.Failed().Wake(""), queue_.Channel(keys.KindDone),
		len(outcomes) / 4, len(outcomes) / 4, len(ends) / 2, adds, len(said) / 2, len(heard), d.IntN(len(starts) + 1),
		0, "", 0, // it reads again what an earlier one passed over
	}
	for _, more := range [][]any{outcomes, ends, said, heard, starts} {
		all = append(all, more...)
	}
	return all
}

// standStill returns the script of a verb with the clock stopped at the given time.
func standStill(verb string, now int64) string {
	time := fmt.Sprintf("{ '%d', '%d' }", now/1000, now%1000*1000)
	return strings.ReplaceAll(store.VerbOf(verb).Source(), "redis.call('TIME')", time)
}
