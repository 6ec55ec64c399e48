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
	s.place = func(a *arena) (func(int) (string, []string), error) {
		var err error
		w, err = newNetwork(a.peers, a.server.addr(), false)
		a.cleanup = append(a.cleanup, w.close)
		return func(slot int) (string, []string) {
			return "redis://" + mixUser + ":" + mixSecret + "@" + w.links[slot].Listen, nil
		}, err
	}
	return play(o, 0, s, func(a *arena) error {
		kinds := slices.Sorted(maps.Keys(toxicCuts))
		asleep := map[int]time.Time{}
		heals := map[int]healing{}
		mend := func(all bool) error {
			for slot, t := range asleep {
				if all || time.Now().After(t) {
					a.fleet.resume(slot)
					delete(asleep, slot)
				}
			}
			for slot, h := range heals {
				if all || time.Now().After(h.at) {
					a.fleet.say(opHeal, a.fleet.members[slot], "")
					if err := h.heal(); err != nil {
						return err
					}
					delete(heals, slot)
				}
			}
			return nil
		}
		for end := time.Now().Add(a.span); time.Now().Before(end); {
			pause(a.between(a.lease/10, a.lease/2))
			if err := mend(false); err != nil {
				return err
			}
			slot := a.awake()
			if slot < 0 {
				continue
			}
			var err error
			switch n := a.dice.IntN(40); {
			case n < 10:
				a.fleet.kill(slot, "")
				err = a.fleet.spawn(slot)
			case n < 16:
				a.fleet.stop(slot)
				asleep[slot] = time.Now().Add(a.between(a.lease/2, 4*a.lease))
			case n < 24:
				if _, cut := heals[slot]; cut {
					continue
				}
				kind := kinds[a.dice.IntN(len(kinds))]
				a.fleet.say(opCut, a.fleet.members[slot], kind)
				h := healing{at: time.Now().Add(a.between(a.lease/3, 4*a.lease))}
				h.heal, err = w.cut(slot, kind)
				heals[slot] = h
			case n < 28:
				a.report.Replacements++
				err = a.fleet.replace(slot)
			case n < 29:
				err = a.stall(a.between(a.lease/2, 3*a.lease))
			case n < 31:
				err = a.restart(a.between(0, a.lease))
			default:
				err = a.trouble(n - 31)
			}
			if err != nil {
				return err
			}
		}
		return mend(true)
	})
}

type healing struct {
	at   time.Time
	heal func() error
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
