package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A cell is a place in the results: one system in one variant of a scenario.
type cell struct{ scenario, variant, system string }

// A step is one measurement, which each round repeats.
type step struct {
	cell
	job    job
	run    func(context.Context, testing.TB, job) sample
	rounds int // 0 means the requested number
}

// A scenario is measured in rounds, each with every system in turn.
type scenario struct {
	name  string
	steps []step
}

func (s *scenario) add(variant, system string, j job) *step {
	j.System = system
	if j.Size == 0 {
		j.Size = 100
	}
	s.steps = append(s.steps, step{cell: cell{s.name, variant, system}, job: j, run: measure})
	return &s.steps[len(s.steps)-1]
}

// The scenarios.
const (
	enqueuing  = "enqueue"
	processing = "process"
	delaying   = "latency"
	storing    = "memory"
	beside     = "peers"
	recovering = "recovery"
	setting    = "settings"
	networking = "network"
	dying      = "deaths"
	stalling   = "stall"
	recording  = "history"
)

// A scale is the size of everything.
type scale struct{ short bool }

func (s scale) of(full, short int) int {
	if s.short {
		return short
	}
	return full
}

func (s scale) wait(full time.Duration) time.Duration {
	if s.short {
		return full / 10
	}
	return full
}

// plan returns all scenarios in order. Without patience, it leaves out the recovery of asynq, which
// takes long.
func plan(s scale, patient bool) []scenario {
	return []scenario{
		planEnqueue(s), planProcess(s), planSettings(s), planNetwork(s), planLatency(s), planMemory(s),
		planPeers(s), planRecovery(s, patient), planDeaths(s), planStall(s), planHistory(s),
	}
}

// behind ends the names of variants in which others wait already.
const behind = ", behind 100,000"

func planEnqueue(s scale) scenario {
	p := scenario{name: enqueuing}
	for _, v := range []struct {
		variant, system   string
		n, callers, batch int
	}{
		{"one by one", ours, 20_000, 1, 1},
		{"one by one", theirs, 15_000, 1, 1},
		{"one by one", bare, 20_000, 1, 1},
		{"one by one", added, 15_000, 1, 1},
		{"32 callers", ours, 200_000, 32, 1},
		{"32 callers", theirs, 60_000, 32, 1},
		{"32 callers", bare, 150_000, 32, 1},
		{"batches of 100", ours, 500_000, 1, 100},
		{"batches of 100", added, 200_000, 1, 100},
		{"32 callers, batches of 100", added, 400_000, 32, 100},
		{"batches of 100", bare, 500_000, 1, 100},
		{"one by one, behind 100,000", ours, 20_000, 1, 1},
		{"32 callers, behind 100,000", ours, 200_000, 32, 1},
		{"batches of 100, behind 100,000", ours, 500_000, 1, 100},
	} {
		j := job{Measure: "enqueue", N: s.of(v.n, v.n/100), Callers: v.callers, Batch: v.batch}
		if strings.HasSuffix(v.variant, behind) {
			j.Backlog = s.of(100_000, 1000)
		}
		p.add(v.variant, v.system, j)
	}
	return p
}

func planProcess(s scale) scenario {
	p := scenario{name: processing}
	for _, v := range []struct {
		handlers    int
		ours, their int
	}{{1, 60_000, 8_000}, {10, 100_000, 15_000}, {64, 250_000, 15_000}} {
		variant := fmt.Sprint(v.handlers)
		p.add(variant, ours, job{Measure: "process", N: s.of(v.ours, v.ours/100), Handlers: v.handlers})
		p.add(variant, theirs, job{Measure: "process", N: s.of(v.their, v.their/50), Handlers: v.handlers})
	}
	p.add("64", added, job{Measure: "process", N: s.of(100_000, 1000), Handlers: 64})
	p.add("64", scripted, job{Measure: "process", N: s.of(250_000, 2500)})
	return p
}

// planSettings is the scenario process with a durable Redis, and with workers that don't prefetch.
func planSettings(s scale) scenario {
	p := scenario{name: setting}
	for _, v := range []struct {
		variant, log string
		their        int
	}{{"no", "", 10_000}, {"yes, everysec", "everysec", 10_000}, {"yes, always", "always", 3_000}} {
		p.add(v.variant, ours, job{Measure: "process", N: s.of(100_000, 2500), Handlers: 64, Fsync: v.log})
		p.add(v.variant, oneByOne, job{Measure: "process", N: s.of(20_000, 500), Handlers: 64, Fsync: v.log})
		p.add(v.variant, theirs, job{Measure: "process", N: s.of(v.their, v.their/50), Handlers: 64, Fsync: v.log})
	}
	return p
}

// planNetwork is the scenario process with a Redis that is a round trip away.
func planNetwork(s scale) scenario {
	p := scenario{name: networking}
	for _, v := range []struct {
		trip, work time.Duration
		n          int
	}{
		{0, 0, 800_000},
		{500 * time.Microsecond, 0, 800_000},
		{2 * time.Millisecond, 0, 800_000},
		{10 * time.Millisecond, 0, 600_000},
		{0, time.Millisecond, 200_000},
		{10 * time.Millisecond, time.Millisecond, 200_000},
	} {
		p.add(away(v.trip, v.work), ours, job{
			Measure: "through", N: s.of(v.n, v.n/200), Handlers: 64, Trip: v.trip, Work: v.work, Window: s.wait(3 * time.Second),
		}).run = measureFar
	}
	return p
}

// away returns the name of a variant of network.
func away(trip, work time.Duration) string {
	return fmt.Sprintf("%v ms | %v ms", millis(trip), millis(work))
}

func planLatency(s scale) scenario {
	p := scenario{name: delaying}
	for _, system := range []string{ours, theirs} {
		p.add("", system, job{Measure: "latency", N: s.of(300, 20), Settle: s.wait(2 * time.Second), Window: s.wait(12 * time.Millisecond)})
	}
	return p
}

func planMemory(s scale) scenario {
	p := scenario{name: storing}
	for _, system := range []string{added, ours, theirs, bare} {
		p.add("", system, job{Measure: "waiting", N: s.of(100_000, 10_000)})
	}
	return p
}

func planPeers(s scale) scenario {
	p := scenario{name: beside}
	for _, peers := range []int{1, 8, 32, 100, 1000} {
		if s.short && peers > 32 {
			break
		}
		systems := []string{ours, theirs}
		if peers > 32 {
			systems = systems[:1]
		}
		for _, system := range systems {
			p.add(fmt.Sprint(peers), system, job{
				Measure: "beside", N: s.of(700, 50), Peers: peers, Settle: s.wait(startUp), Window: s.wait(5 * time.Second),
			}).rounds = s.of(2, 1)
		}
	}
	return p
}

// startUp is how long a new worker does things that it does only once: two leases, and a beat or
// two.
const startUp = 8 * time.Second

func planRecovery(s scale, patient bool) scenario {
	p := scenario{name: recovering}
	mine := p.add("", ours, job{N: 10, Settle: s.wait(2 * time.Second)})
	mine.run, mine.rounds = measureRecovery, s.of(5, 1)
	if patient {
		their := p.add("", theirs, job{N: 10, Settle: s.wait(2 * time.Second)})
		their.run, their.rounds = measureRecovery, 1
	}
	return p
}

func planDeaths(s scale) scenario {
	p := scenario{name: dying}
	n := s.of(1000, 20)
	p.add("", ours, job{N: n, Peers: n, Settle: s.wait(2 * time.Second)}).run = measureMassDeath
	return p
}

func planStall(s scale) scenario {
	p := scenario{name: stalling}
	stall := p.add("", ours, job{
		Peers: s.of(500, 5), Queues: s.of(20, 2), Settle: s.wait(startUp), Window: s.wait(10 * time.Second),
	})
	stall.run, stall.rounds = measureStall, 1
	return p
}

func planHistory(s scale) scenario {
	p := scenario{name: recording}
	p.add("", ours, job{Measure: "history", N: s.of(30, 3), Queues: s.of(200, 5)})
	for _, system := range []string{ours, quiet} { // the window is as long as it takes until all peers would write
		p.add("idle", system, job{
			Measure: "idle", Peers: s.of(500, 5), Queues: s.of(20, 2), Settle: s.wait(startUp), Window: s.wait(time.Minute),
		}).rounds = s.of(2, 1)
	}
	return p
}
