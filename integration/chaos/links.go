package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/peertest"
)

// A cutter makes the link of one slot fail in one way, and returns a function that repairs it.
type cutter func(slot int, kind string) (heal func() error, err error)

// links makes the links of peers fail in every way, several at the same time: those through a proxy and, if
// the driver may change the network, those between namespaces.
func links(o options) *report {
	r := cutProxies(o, 0)
	if err := namespacesWork(); err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("no packets are filtered between network namespaces: %v", err))
	} else {
		r.add(cutNamespaces(o, 1))
	}
	return r
}

func cutProxies(o options, number int) *report {
	s := setup{durability: everysec, cut: true, tail: 4*o.lease + 4*time.Second, spec: load.Config{Faults: true}}
	var w *network
	s.place = throughLinks(&w, false)
	return play(o, number, s, func(a *arena) {
		a.cutLinks(a.cuts, slices.Sorted(maps.Keys(toxicCuts)), w.cut)
	})
}

// cutLinks makes n cuts, alternating between the kinds, for less and for more than a lease. At most
// half of the links are cut at a time.
func (a *arena) cutLinks(n int, kinds []string, cut cutter) {
	var mending sync.WaitGroup
	var mu sync.Mutex
	var failed error
	busy := map[int]bool{}
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if len(busy) < len(a.fleet.members)/2 {
			if slot := a.awake(); slot >= 0 && !busy[slot] {
				busy[slot] = true
				return slot
			}
		}
		return -1
	}
	for i := 0; i < n; {
		pause(a.between(0, a.lease/2))
		slot := take()
		if slot < 0 {
			continue
		}
		kind, last := kinds[i%len(kinds)], a.between(a.lease/3, 4*a.lease)
		m := a.fleet.members[slot]
		a.fleet.say(opCut, m, kind)
		heal, err := cut(slot, kind)
		peertest.Must(a.t, err)
		mending.Go(func() {
			pause(last)
			err := heal()
			a.fleet.say(opHeal, m, kind)
			mu.Lock()
			defer mu.Unlock()
			delete(busy, slot)
			if err != nil {
				failed = fmt.Errorf("repair a link that was cut by %s: %w", kind, err)
			}
		})
		i++
	}
	mending.Wait()
	peertest.Must(a.t, failed)
}
