package search

import (
	"fmt"
	"strings"
)

func (r request) String() string {
	words := []string{fmt.Sprintf("%s %d", [...]string{toStep: "round", toJoin: "join", toLeave: "leave"}[r.kind], r.number)}
	for _, e := range r.ends {
		if e.verb != none {
			words = append(words, fmt.Sprintf("%v P%d(%d)", e.verb, e.process, e.token))
		}
	}
	for slot, by := range r.runs {
		for name, runs := range by {
			if runs {
				words = append(words, fmt.Sprintf("P%d is stopping for the %s", processOf(int(r.worker), slot), names[name]))
			}
		}
	}
	if r.said > 0 {
		words = append(words, fmt.Sprintf("acknowledges %d", r.said))
	}
	if r.start != 0 {
		words = append(words, fmt.Sprintf("start P%d", r.start))
	}
	return strings.Join(words, ", ")
}

var names = [2]string{"payload", "key"}

// show formats a state: Redis, then the peers, then the requests in flight.
func (m *model) show(s state) string {
	b := &strings.Builder{}
	m.showRedis(b, &s.redis)
	if c := s.call; c.begun {
		fmt.Fprintf(b, "\ncancel  %d left, entries after %d until %d", c.left, c.after, c.until)
	}
	for w := range m.scope.workers {
		p := &s.peers[w]
		fmt.Fprintf(b, "\nW%d     %s round %d", w+1, phases[p.phase], p.number)
		for i, h := range p.held {
			if h.token != 0 {
				fmt.Fprintf(b, "; holds P%d(%d)=T%d%s%s", processOf(w, i), h.token, h.task,
					map[bool]string{true: " said"}[h.said], map[bool]string{true: " canceled"}[h.canceled])
			}
		}
		for _, e := range p.flight {
			if e.kind != nothing {
				fmt.Fprintf(b, "; %v: %s", e.request, map[bool]string{true: "under way", false: "answered"}[e.sent])
				if e.refused {
					fmt.Fprint(b, " refused")
				}
				if e.answer.token != 0 {
					fmt.Fprintf(b, " T%d(%d)", e.task, e.answer.token)
				}
			}
		}
	}
	for i, r := range s.late {
		if r.kind != nothing {
			fmt.Fprintf(b, "\ncopy %d of W%d: %v", i+1, r.worker+1, r)
		}
	}
	return b.String()
}

func (m *model) showRedis(b *strings.Builder, q *redis) {
	fmt.Fprint(b, "redis  waiting [")
	for i, t := range q.waiting {
		if t != 0 {
			fmt.Fprintf(b, "%sT%d", map[bool]string{true: " "}[i > 0], t)
		}
	}
	fmt.Fprintf(b, "] token %d", q.token)
	if q.added[0] != 0 {
		fmt.Fprintf(b, "; added %v", q.added)
	}
	for w := range m.scope.workers {
		if q.member[w] != noMember || q.suspect[w] != unmarked {
			fmt.Fprintf(b, "; W%d%s%s round %d", w+1, [...]string{" no member", "", " lapsed"}[q.member[w]],
				[...]string{"", " suspected", " failed", " left"}[q.suspect[w]], q.round[w])
		}
	}
	for i, p := range q.process {
		if p.token != 0 {
			fmt.Fprintf(b, "; P%d(%d)=T%d of W%d", i+1, p.token, p.task, workerOf(uint8(i+1))+1)
		}
	}
	for i, e := range q.entry {
		if e != (entry{}) {
			fmt.Fprintf(b, "; entry %d:", i)
			if e.task != 0 {
				fmt.Fprintf(b, " T%d waits%s%s", e.task, map[bool]string{false: " blocked"}[e.planned], map[bool]string{true: " later"}[e.later])
			}
			if e.process != 0 {
				fmt.Fprintf(b, " P%d runs", e.process)
			}
		}
	}
	for name, token := range q.cancel {
		if token > 0 {
			fmt.Fprintf(b, "; cancel of the %s(%d)", names[name], token)
		}
	}
	for w, h := range q.holder {
		if h.there {
			fmt.Fprintf(b, "; W%d has acknowledged %d", w+1, h.said)
		}
	}
	for i, by := range q.stopping {
		for name, token := range by {
			if token > 0 {
				fmt.Fprintf(b, "; P%d(%d) is stopping for the %s", i+1, token, names[name])
			}
		}
	}
}
