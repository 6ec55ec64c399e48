package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/worqr/worqr/integration/spec"
)

// A drawing draws calls that suit what Redis holds, and some that don't.
type drawing struct {
	*rand.Rand
	*bench
	hostile  bool
	now      int64
	inFailed bool // the call is on the failed queue
}

var (
	workers  = []string{"a", "b", "c"}
	payloads = []string{"x", "y", "x"}
	names    = []string{"k:a", "k:a", "k:b", "u:" + spec.Digest("x")}
)

// member draws a worker, mostly one that is a member.
func (d *drawing) member() string {
	if all := d.of().Workers; len(all) > 0 && d.IntN(8) > 0 {
		return all[d.IntN(len(all))].Name
	}
	return one(d, workers...)
}

func one[T any](d *drawing, all ...T) T { return all[d.IntN(len(all))] }

func (d *drawing) of() *spec.Queue {
	if d.inFailed {
		return d.held.Failed
	}
	return &d.held
}

func (d *drawing) call(of func(q *spec.Queue) (any, error), format string, args ...any) drawn {
	words := fmt.Sprintf(format, args...)
	if d.inFailed {
		words = "failed." + words
	}
	return drawn{d.now, words, of}
}

const began = 1_000_000_000_000

// draw draws a call.
func (d *drawing) draw() drawn {
	d.inFailed = d.IntN(5) == 0
	d.now = max(d.now, began) + int64(one(d, 0, 1, 10, 10, 1000, 1000, 4000, -1500))
	if d.hostile && d.IntN(12) == 0 {
		return d.disturb()
	}
	switch d.IntN(24) {
	case 0, 1, 2:
		return d.join()
	case 3, 4, 5, 6:
		return d.start()
	case 7, 8, 9, 10:
		return d.finish()
	case 11:
		worker, lease, judge := d.member(), one(d, int64(3000), 3000, 0, 9000), d.IntN(2)
		return d.call(func(q *spec.Queue) (any, error) {
			p, err := q.Heartbeat(worker, lease, judge == 1)
			return []any{p.Deadline, p.Now, p.Held, p.More, p.Rank, p.Idle, list(p.Stops), p.Asks}, err
		}, "heartbeat worker=%s lease=%d judge=%d", worker, lease, judge)
	case 12:
		return d.leave()
	case 13, 14:
		return d.evict()
	case 15:
		return d.cancel()
	case 16:
		return d.mark()
	case 17:
		name, how := one(d, names...), one(d, "removed", "canceled")
		return d.call(func(q *spec.Queue) (any, error) {
			removed, marked := q.Remove(name, how)
			return []any{bit(removed), marked}, nil
		}, "remove name=%s how=%s", name, how)
	default:
		return d.prepare()
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func list[T any](all []T) []any {
	out := []any{}
	for _, v := range all {
		out = append(out, v)
	}
	return out
}

func (d *drawing) round(worker string) int64 {
	v, _ := d.of().Rounds.Get(worker)
	var n int64
	fmt.Sscan(v, &n)
	return n
}

func (d *drawing) join() drawn {
	worker, lease := one(d, workers...), one(d, int64(3000), 3000, 3000, 0)
	round, asked := d.round(worker)+int64(one(d, 1, 1, 1, 0)), d.of().Number("token")+int64(one(d, 0, 0, 0, -1))
	return d.call(func(q *spec.Queue) (any, error) {
		return q.Join(worker, lease, asked, round), nil
	}, "join worker=%s lease=%d asked=%d round=%d", worker, lease, asked, round)
}

func (d *drawing) leave() drawn {
	worker := one(d, workers...)
	round := d.round(worker) + int64(one(d, 0, 0, -1))
	return d.call(func(q *spec.Queue) (any, error) {
		n, more := q.Leave(worker, round)
		return []any{n, bit(more)}, nil
	}, "leave worker=%s round=%d", worker, round)
}

func (d *drawing) evict() drawn {
	target, judge := one(d, "", "", "", "", one(d, workers...)), d.now+int64(one(d, 0, 900, 900, 2500, -5))
	return d.call(func(q *spec.Queue) (any, error) {
		l := q.Evict(target, judge, 1000)
		dead := []any{}
		for _, m := range l.Evicted {
			dead = append(dead, m.Name, m.Score)
		}
		return []any{dead, l.Returned, l.Wait}, nil
	}, "evict target=%s judge=%d", target, judge)
}

func (d *drawing) start() drawn {
	worker := d.member()
	r := spec.Start{Worker: worker, Round: d.round(worker) + int64(one(d, 1, 1, 1, 1, 0, -1)), Stamp: 9, Lease: one(d, int64(3000), 3000, 0),
		Wanted: d.IntN(5), Idle: d.IntN(4) > 0, Solo: d.IntN(2) == 0, MaxCrashes: one(d, int64(0), 1, 2, 3)}
	r.Ahead = d.IntN(r.Wanted + 1)
	return d.call(func(q *spec.Queue) (any, error) {
		a, err := q.Start(r)
		tasks := []any{}
		for _, t := range a.Tasks {
			switch {
			case t.Over:
				tasks = append(tasks, nil)
			case t.Name != "":
				tasks = append(tasks, []any{t.Name, t.Record, t.Retries, t.Crashes, t.Error})
			case t.Crashes > 0:
				tasks = append(tasks, []any{t.Record, t.Crashes})
			default:
				tasks = append(tasks, t.Record)
			}
		}
		return []any{a.First, tasks, a.Last, a.Before, a.More, a.Due, a.Now}, err
	}, "%s", r.Words())
}

func (d *drawing) finish() drawn {
	worker := d.member()
	held, _ := d.of().Working.Get(worker)
	var plain, others []spec.End
	for _, m := range held {
		item, _ := d.of().Process.Get(m.Name)
		e := spec.End{Attempt: m.Name, Token: max(m.Score, -m.Score) + int64(one(d, 0, 0, 0, 0, 0, 0, 1))}
		named := strings.HasSuffix(m.Name, "n")
		switch {
		case d.IntN(3) == 0 || named && item == "":
		case !named && d.IntN(3) == 0:
			plain = append(plain, e)
		default:
			if e.Identity = item; !named {
				e.Identity = "d:" + spec.Digest(item)
			}
			e.Verb, e.Delay = one(d, "done", "drop", "stop", "retry", "snooze", "fail"), one(d, int64(0), 500, 60000)
			e.Text = map[string]string{"done": "res", "drop": "late", "retry": "why", "fail": one(d, "failed:why:not", "expired:late")}[e.Verb]
			others = append(others, e)
		}
	}
	ends := append(plain, others...)
	return d.call(func(q *spec.Queue) (any, error) {
		became, err := q.Finish(worker, ends)
		odd := []any{}
		for i, word := range became { // those that are plain first, then from the last to the first
			if i < len(plain) && word != spec.OK {
				odd = append(odd, i+1, word)
			}
		}
		for i := len(became) - 1; i >= len(plain); i-- {
			if became[i] != spec.OK {
				odd = append(odd, i+1, became[i])
			}
		}
		return []any{odd, 0}, err
	}, "%s", spec.Words(worker, ends))
}

func (d *drawing) cancel() drawn {
	payload := one(d, payloads...)
	after := one(d, "", "", "", fmt.Sprintf("r:%s:%d", spec.Digest(payload), d.IntN(9)))
	return d.call(func(q *spec.Queue) (any, error) {
		p := q.Cancel(payload, after)
		var next any
		if !p.Last {
			next = p.After
		}
		return []any{p.Removed, next, p.Token, list(p.Workers)}, nil
	}, "cancel payload=%s after=%s", payload, after)
}

func (d *drawing) mark() drawn {
	payload, worker := one(d, payloads...), d.member()
	token := d.of().Number("token") - int64(d.IntN(3))
	after := int64(d.IntN(int(max(token, 0)) + 1))
	return d.call(func(q *spec.Queue) (any, error) {
		upTo, found, err := q.Mark(payload, token, worker, after)
		return []any{upTo, list(found)}, err
	}, "mark payload=%s token=%d worker=%s after=%d", payload, token, worker, after)
}

// prepare draws a call that has no specification.
func (d *drawing) prepare() drawn {
	at := int64(0)
	if d.IntN(2) == 0 {
		at = d.now + int64(one(d, 500, 60000, -1))
	}
	switch d.IntN(9) {
	case 0:
		d.inFailed = false
		return d.call(nil, "HSET crashes %s 1", spec.Digest(one(d, payloads...)))
	case 1:
		if name := one(d, names...); d.held.Tasks.Has(name) && !d.held.Runs.Has(name) {
			d.inFailed = false
			return d.call(nil, "HSET runs %s :1:1:why", name)
		}
	case 7, 8:
		return d.call(nil, "enqueue %s %s %s", one(d, payloads...), one(d, payloads...), one(d, payloads...))
	case 2, 3, 4:
		record := fmt.Sprintf("0:%d:0:%d:0:2:m1%s", at, one(d, 0, 9000), one(d, payloads...))
		return d.call(nil, "add %s %d %s %d %d '' 0 %s", one(d, names...), at, one(d, "always", "never", "later", "earlier", "unique"), d.IntN(2),
			d.IntN(2), record)
	case 5:
		if failed := d.held.Failed.Tasks; len(failed) > 0 {
			d.inFailed = false
			return d.call(nil, "requeue %s", failed[d.IntN(len(failed))].Name)
		}
	case 6:
		who := one(d, "me", "", "")
		return d.call(func(q *spec.Queue) (any, error) { q.Pause(who); return 1, nil }, "pause who=%s", who)
	}
	return d.call(nil, "delete first=%d", d.IntN(2))
}

// disturb draws what another program might do.
func (d *drawing) disturb() drawn {
	prefix := ""
	if d.inFailed {
		prefix = "failed."
	}
	d.inFailed = false
	kind := prefix + one(d, "queues", "tasks", "ready", "schedule", "risky", "aside", "next", "runs", "copies", "workers", "suspects", "leaving",
		"idle", "rounds", "state", "crashes", "working:a")
	name, worker := one(d, append(names, "k:ghost", "r:"+spec.Digest("x")+":77")...), one(d, workers...)
	return d.call(nil, "%s", one(d,
		"DEL "+kind, "DEL "+kind,
		fmt.Sprintf("HSET %sstate %s %s", prefix, one(d, "token", "place", "fence", "lease"), one(d, "7", "3")),
		fmt.Sprintf("HSET %sstate %s %d", prefix, one(d, "look", "claimed"), d.now+int64(one(d, 9e9, -5))),
		fmt.Sprintf("ZADD %s%s %d %s", prefix, one(d, "ready", "schedule", "risky", "copies"), one(d, int64(0), 3, -4, d.now+9e9), name),
		fmt.Sprintf("ZADD %s%s %d %s", prefix, one(d, "workers", "suspects", "idle"), d.now+int64(one(d, 9e9, -5)), one(d, worker, "ghost")),
		fmt.Sprintf("ZADD %sleaving %d %s", prefix, d.IntN(2), one(d, worker, "ghost")),
		fmt.Sprintf("ZADD %sworking:%s 900 foreign", prefix, worker),
		fmt.Sprintf("HSET %sruns %s %s", prefix, name, one(d, "foreign", "z.1.9.1n:0:0:", ":1:2:why")),
		fmt.Sprintf("HSET %sruns %s %s", prefix, name, "a.99.9.1n:0:0:"),
		fmt.Sprintf("HSET %snext %s foreign", prefix, name),
		fmt.Sprintf("HSET %scrashes %s 2", prefix, spec.Digest("x")),
		fmt.Sprintf("HSET %stasks %s foreign", prefix, name),
		fmt.Sprintf("SET %scanceled:%s %d", prefix, spec.Digest("x"), d.IntN(20)),
	))
}
