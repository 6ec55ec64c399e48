package main

import (
	"maps"
	"slices"
	"time"
)

// mix has all faults come, one after another or several at once: those of the
// other campaigns, and the small ones that operators know.
func mix(o options) *report {
	var w *network
	s := setup{durability: always, cut: true, users: []string{"--user", mixUser, "on", ">" + mixSecret, "~*", "&*", "+@all"}, tail: 4*o.lease + 4*time.Second, spec: peerSpec{Faults: true, Cancels: 10}}
	s.place = throughLinks(&w, false, mixUser+":"+mixSecret+"@")
	return play(o, 0, s, func(a *arena) error {
		m := &medley{a, w, map[int]time.Time{}, map[int]healing{}}
		for end := time.Now().Add(a.span); time.Now().Before(end); {
			pause(a.between(a.lease/10, a.lease/2))
			err := m.mend(false)
			if slot := a.awake(); slot >= 0 && err == nil {
				err = m.fault(slot)
			}
			if err != nil {
				return err
			}
		}
		return m.mend(true)
	})
}

// A medley is the faults that have come and are not over.
type medley struct {
	*arena
	net    *network
	asleep map[int]time.Time // peers that stand still, and until when
	heals  map[int]healing
}

type healing struct {
	at   time.Time
	heal func() error
}

// mend ends the faults whose time is over, or all.
func (m *medley) mend(all bool) error {
	for slot, t := range m.asleep {
		if all || time.Now().After(t) {
			m.fleet.resume(slot)
			delete(m.asleep, slot)
		}
	}
	for slot, h := range m.heals {
		if all || time.Now().After(h.at) {
			m.fleet.say(opHeal, m.fleet.members[slot], "")
			if err := h.heal(); err != nil {
				return err
			}
			delete(m.heals, slot)
		}
	}
	return nil
}

// fault has one come upon the peer of a slot, or upon the server.
func (m *medley) fault(slot int) (err error) {
	switch n := m.dice.IntN(40); {
	case n < 10:
		m.fleet.kill(slot, "")
		err = m.fleet.spawn(slot)
	case n < 16:
		m.fleet.stop(slot)
		m.asleep[slot] = time.Now().Add(m.between(m.lease/2, 4*m.lease))
	case n < 24:
		if _, cut := m.heals[slot]; cut {
			return nil
		}
		kinds := slices.Sorted(maps.Keys(toxicCuts))
		kind := kinds[m.dice.IntN(len(kinds))]
		m.fleet.say(opCut, m.fleet.members[slot], kind)
		h := healing{at: time.Now().Add(m.between(m.lease/3, 4*m.lease))}
		h.heal, err = m.net.cut(slot, kind)
		m.heals[slot] = h
	case n < 28:
		m.report.Replacements++
		err = m.fleet.replace(slot)
	case n < 29:
		err = m.stall(m.between(m.lease/2, 3*m.lease))
	case n < 31:
		err = m.restart(m.between(0, m.lease))
	default:
		err = m.trouble(n - 31)
	}
	return err
}

const mixUser, mixSecret = "chaotic", "topsecret"

// trouble is what happens to a server that goes on running. It is over when this
// returns.
func (a *arena) trouble(n int) error {
	all := func(note string) (over func()) {
		a.journal.say(event{Op: opCut, Note: note})
		return func() { a.journal.say(event{Op: opHeal, Note: note}) }
	}
	apart := func(note string, begin, end []any) error {
		defer all(note)()
		if _, err := a.server.do(begin); err != nil {
			return err
		}
		pause(a.between(a.lease/3, 2*a.lease))
		_, err := a.server.do(end)
		return err
	}
	switch n {
	case 0, 1, 2:
		defer all("script flush")()
		_, err := a.server.do([]any{"SCRIPT", "FLUSH"})
		return err
	case 3, 4:
		defer all("client kill")()
		_, err := a.server.do([]any{"CLIENT", "KILL", "TYPE", "normal"}, []any{"CLIENT", "KILL", "TYPE", "pubsub"})
		return err
	case 5:
		return apart("read-only", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"})
	case 6:
		defer all("no password")()
		if _, err := a.server.do([]any{"ACL", "SETUSER", mixUser, "off"}, []any{"CLIENT", "KILL", "USER", mixUser}); err != nil {
			return err
		}
		pause(a.between(a.lease/3, 2*a.lease))
		_, err := a.server.do([]any{"ACL", "SETUSER", mixUser, "on"})
		return err
	case 7:
		return apart("paused writes", []any{"CLIENT", "PAUSE", 60_000, "WRITE"}, []any{"CLIENT", "UNPAUSE"})
	default:
		all("rolling restart")() // nobody is cut off by it
		for slot, m := range a.fleet.members {
			if !m.asleep && m.serves() { // who is cut off would be waited for in vain
				a.report.Replacements++
				if err := a.fleet.replace(slot); err != nil {
					return err
				}
			}
			pause(a.lease / 10)
		}
		return nil
	}
}
