package main

import (
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/peertest"
)

// mix applies all faults, alone and in combination: those of the other campaigns, and small ones
// that operators cause.
func mix(o options) *report {
	return mixed(o, setup{}, slices.Sorted(maps.Keys(toxicCuts)))
}

// withTLS applies the faults with certificates on both sides. The proxy can't read the traffic, so
// no link is half open.
func withTLS(o options) *report {
	kinds := slices.Sorted(maps.Keys(toxicCuts))
	return mixed(o, setup{tls: true}, slices.DeleteFunc(kinds, func(k string) bool { return k == "half-open" }))
}

func mixed(o options, s setup, cuts []string) *report {
	var w *network
	s.durability, s.cut, s.tail, s.spec = always, true, 4*o.lease+4*time.Second, load.Config{Faults: true, Cancels: 10}
	s.place = throughLinks(&w, false)
	return play(o, 0, s, func(a *arena) {
		m := &medley{a, w, cuts, map[int]time.Time{}, map[int]healing{}}
		for end := time.Now().Add(a.span); time.Now().Before(end); {
			pause(a.between(a.lease/10, a.lease/2))
			m.mend(false)
			if slot := a.awake(); slot >= 0 {
				m.fault(slot)
			}
		}
		m.mend(true)
	})
}

// A medley is the faults in effect.
type medley struct {
	*arena
	net    *network
	cuts   []string          // kinds
	asleep map[int]time.Time // stopped peers, and until when
	heals  map[int]healing
}

type healing struct {
	at   time.Time
	heal func() error
}

// mend ends the faults that are due, or all of them.
func (m *medley) mend(all bool) {
	for slot, t := range m.asleep {
		if all || time.Now().After(t) {
			m.fleet.resume(slot)
			delete(m.asleep, slot)
		}
	}
	for slot, h := range m.heals {
		if all || time.Now().After(h.at) {
			m.fleet.say(opHeal, m.fleet.members[slot], "")
			peertest.Must(m.t, h.heal())
			delete(m.heals, slot)
		}
	}
}

// fault applies a random fault to the peer of a slot, or to the server.
func (m *medley) fault(slot int) {
	switch n := m.dice.IntN(40); {
	case n < 10:
		m.fleet.kill(slot, "")
		m.fleet.spawn(slot)
	case n < 16:
		m.fleet.stop(slot)
		m.asleep[slot] = time.Now().Add(m.between(m.lease/2, 4*m.lease))
	case n < 24:
		if _, cut := m.heals[slot]; cut {
			return
		}
		kind := m.cuts[m.dice.IntN(len(m.cuts))]
		m.fleet.say(opCut, m.fleet.members[slot], kind)
		at := time.Now().Add(m.between(m.lease/3, 4*m.lease))
		heal, err := m.net.cut(slot, kind)
		peertest.Must(m.t, err)
		m.heals[slot] = healing{at, heal}
	case n < 28:
		m.report.Replacements++
		m.fleet.replace(slot)
	case n < 29:
		m.stall(m.between(m.lease/2, 3*m.lease))
	case n < 31:
		m.restart(m.between(0, m.lease))
	default:
		m.trouble(n - 31)
	}
}

// trouble harms a server that keeps running, until trouble returns.
func (a *arena) trouble(n int) {
	// amid sends the commands in begin and, if end isn't empty, sends end after a while.
	amid := func(note string, begin [][]any, end ...any) {
		a.journal.say(event{Op: opCut, Note: note})
		defer a.journal.say(event{Op: opHeal, Note: note})
		a.server.do(begin...)
		if len(end) > 0 {
			pause(a.between(a.lease/3, 2*a.lease))
			a.server.do(end)
		}
	}
	switch n {
	case 0, 1, 2:
		amid("script flush", [][]any{{"SCRIPT", "FLUSH"}})
	case 3, 4:
		amid("client kill", [][]any{{"CLIENT", "KILL", "TYPE", "normal"}, {"CLIENT", "KILL", "TYPE", "pubsub"}})
	case 5:
		amid("read-only", [][]any{{"REPLICAOF", "127.0.0.1", "1"}}, "REPLICAOF", "NO", "ONE")
	case 6:
		amid("no password", [][]any{{"ACL", "SETUSER", user, "off"}, {"CLIENT", "KILL", "USER", user}}, "ACL", "SETUSER", user, "on")
	case 7:
		amid("paused writes", [][]any{{"CLIENT", "PAUSE", 60_000, "WRITE"}}, "CLIENT", "UNPAUSE")
	default:
		a.journal.say(event{Op: opCut, Note: "rolling restart"})
		a.journal.say(event{Op: opHeal, Note: "rolling restart"}) // a restart cuts no peer off
		for slot, m := range a.fleet.members {
			if !m.asleep && m.serves() { // don't wait for peers that are stopped or cut off
				a.report.Replacements++
				a.fleet.replace(slot)
			}
			pause(a.lease / 10)
		}
	}
}
