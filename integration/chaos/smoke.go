package main

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// smoke has a little of everything come that any engine knows, and beside it what only
// this engine knows: failovers, slots that move.
func smoke(o options) *report {
	s := setup{durability: always, cut: true, tail: 4*o.lease + 4*time.Second, spec: peerSpec{Faults: true, Cancels: 10}}
	return play(o, 0, s, func(a *arena) error {
		m := &medley{a, nil, map[int]time.Time{}, map[int]healing{}}
		over, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- a.troubles(over, rand.New(rand.NewPCG(a.seed, 1))) }()
		err := m.smoke()
		close(over)
		healed := m.mend(true) // peers that stand still would stay at the old master
		return cmp.Or(err, healed, <-ended)
	})
}

func (m *medley) smoke() error {
	for end := time.Now().Add(m.span); time.Now().Before(end); {
		pause(m.between(m.lease/10, m.lease/2))
		if err := m.mend(false); err != nil {
			return err
		}
		slot := m.awake()
		if slot < 0 {
			continue
		}
		var err error
		switch n := m.dice.IntN(10); {
		case n < 5:
			m.fleet.kill(slot, "")
			err = m.fleet.spawn(slot)
		case n < 7:
			m.fleet.stop(slot)
			m.asleep[slot] = time.Now().Add(m.between(m.lease/2, 4*m.lease))
		case n < 8:
			m.report.Replacements++
			err = m.fleet.replace(slot)
		case n < 9:
			err = m.at("script flush", []any{"FLUSH"}, "SCRIPT")
		default:
			kill := []any{"KILL", "TYPE", "normal"}
			if m.site != nil {
				kill = []any{"KILL", "USER", mixUser} // the harness goes on
			}
			err = m.at("client kill", kill, "CLIENT")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// at carries out a command on all servers. One that is just gone has no part in it.
func (a *arena) at(note string, args []any, command string) error {
	a.journal.say(event{Op: opCut, Note: note})
	defer a.journal.say(event{Op: opHeal, Note: note})
	err := a.each(func(c redis.Conn) error {
		_, err := c.Do(command, args...)
		return err
	})
	if a.site != nil {
		return nil
	}
	return err
}

// troubles has what only this engine knows come, one after the other.
func (a *arena) troubles(over <-chan struct{}, d *rand.Rand) error {
	for a.site != nil {
		a.journal.say(event{Op: opCut, Note: "trouble"})
		err := redistest.Try(func() {
			what := a.site.trouble(d)
			a.journal.say(event{Op: opCut, Note: what})
		})
		a.journal.say(event{Op: opHeal, Note: "trouble"})
		if err != nil {
			return err
		}
		select {
		case <-over:
			return nil
		case <-time.After(time.Duration(d.Int64N(int64(time.Second)))):
		}
	}
	return nil
}
