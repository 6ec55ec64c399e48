package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// memory fills Redis up: only calls that add work are refused, peers die and join in the meantime,
// and the queues drain while the limit still applies.
func memory(o options) *report {
	o.peers = min(o.peers, 6)
	s := setup{durability: everysec, spec: load.Config{
		Queues: []string{"slow"}, Every: 5 * time.Millisecond, Batch: 5, Size: 8 << 10, Nap: 200 * time.Millisecond, Faults: true,
	}}
	r := play(o, 0, s, func(a *arena) {
		a.server.do([]any{"CONFIG", "SET", "maxmemory", a.figure("memory", "used_memory") + 8<<20})
		peertest.Eventually(a.t, "Redis is full", func() bool { return a.figure("errorstats", "errorstat_OOM:count") > 0 })
		for end := time.Now().Add(a.span / 4); time.Now().Before(end); pause(a.between(a.lease, 3*a.lease)) {
			if slot := a.awake(); slot >= 0 {
				a.fleet.kill(slot, "")
				a.fleet.spawn(slot)
			}
		}
	})
	if r.Refused == 0 {
		r.violate("no enqueue was refused, so Redis was not full")
	}
	return r
}

// figure reads a number from INFO; 0 if it is missing.
func (a *arena) figure(section, name string) int {
	info := redistest.Sure(redis.String(a.server.do([]any{"INFO", section}), nil))(a.t)
	_, rest, _ := strings.Cut(info, "\n"+name)
	n, _ := strconv.Atoi(strings.FieldsFunc(rest+" 0", func(r rune) bool { return r < '0' || r > '9' })[0])
	return n
}
