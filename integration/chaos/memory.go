package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// memory has Redis be full: only what adds work is refused, peers die and join
// meanwhile, and the queues drain to nothing while the bound is still in force.
func memory(o options) *report {
	o.peers = min(o.peers, 6)
	s := setup{durability: everysec, spec: peerSpec{
		Queues: []string{"slow"}, Every: 5 * time.Millisecond, Batch: 5, Size: 8 << 10, Nap: 200 * time.Millisecond, Faults: true,
	}}
	r := play(o, 0, s, func(a *arena) error {
		used, err := a.figure("memory", "used_memory")
		if err != nil {
			return err
		}
		if _, err := a.server.do([]any{"CONFIG", "SET", "maxmemory", used + 8<<20}); err != nil {
			return err
		}
		full := func() (bool, error) {
			n, err := a.figure("errorstats", "errorstat_OOM:count")
			return n > 0, err
		}
		for began := time.Now(); ; pause(50 * time.Millisecond) { // between two looks
			is, err := full()
			if err != nil {
				return err
			}
			if is {
				break
			}
			if time.Since(began) > 2*time.Minute {
				return errors.New("it did not become full in two minutes")
			}
		}
		for end := time.Now().Add(a.span / 4); time.Now().Before(end); pause(a.between(a.lease, 3*a.lease)) {
			if slot := a.awake(); slot >= 0 {
				a.fleet.kill(slot, "")
				if err := a.fleet.spawn(slot); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if r.Refused == 0 {
		r.violate("no enqueue was refused, so Redis was not full")
	}
	return r
}

// figure reads a number of INFO; 0 if it is not there.
func (a *arena) figure(section, name string) (int, error) {
	info, err := redis.String(a.server.do([]any{"INFO", section}))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "\n"+name)
	n, _ := strconv.Atoi(strings.FieldsFunc(rest+" 0", func(r rune) bool { return r < '0' || r > '9' })[0])
	return n, nil
}
