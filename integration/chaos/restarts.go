package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/integration/load"
)

// restarts kills Redis, which comes back with what it has kept. With AOF always that is everything
// acknowledged. With the others the peers survive, and every lost task is listed.
func restarts(o options) *report {
	arenas := min(max(o.restarts/5, 1), 5)
	o.peers = min(o.peers, 4)
	return several(arenas, func(number int) *report {
		s := setup{
			durability: o.fsync, alive: true, forgets: o.fsync != always, tail: 2*o.lease + time.Second,
			spec: load.Config{Every: 20 * time.Millisecond, Batch: 5, Nap: 300 * time.Millisecond},
		}
		return play(o, number, s, func(a *arena) {
			for range (a.restarts + arenas - 1 - number) / arenas { // divided among the arenas
				pause(a.between(a.lease, 4*a.lease))
				a.restart(a.between(0, 2*a.lease))
			}
		})
	})
}

// restart kills the server and restarts it after a while. With AOF everysec it simulates a power
// failure: writes of up to the last second are lost.
func (a *arena) restart(after time.Duration) {
	a.server.note()
	synced := a.server.written()
	if a.durability == everysec {
		pause(a.between(0, time.Second))
	}
	a.journal.say(event{Op: opServer, Note: noteKill})
	a.server.Kill()
	if a.durability == everysec {
		a.server.forget(synced)
	}
	pause(after)
	a.report.Restarts++
	a.server.Restart(a.t)
	a.journal.say(event{Op: opServer, Note: noteBack})
}

const noteKill, noteBack = "kill", "back"

// lossLines are log lines in which a peer reports that Redis lost acknowledged writes.
var lossLines = []string{
	"Redis has lost writes",
	load.SaysLost,
	"coming back under a new id", // the membership is gone
	"whose start Redis has lost",
	"that Redis assigns to this worker",
}

// lossTimes returns the times of these log lines.
func (a *arena) lossTimes() (times []time.Time, err error) {
	paths, err := filepath.Glob(filepath.Join(a.dir, "*.log"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		said, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a log: %w", err)
		}
		for line := range strings.Lines(string(said)) {
			at, rest, ok := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			if !ok || !slices.ContainsFunc(lossLines, func(c string) bool { return strings.Contains(rest, c) }) {
				continue
			}
			t, err := time.Parse(time.RFC3339Nano, at)
			if err != nil {
				return nil, fmt.Errorf("read the log %s: %w", path, err)
			}
			times = append(times, t)
		}
	}
	return times, nil
}

// lossReports: after each restart that lost acknowledged writes, some peer reports it before the
// next restart.
func (e *evidence) lossReports(r *report, times []time.Time) {
	for i, v := range e.events {
		if v.Op != opServer || v.Note != noteKill {
			continue
		}
		lost := 0
		for _, t := range e.tasks {
			if t.Forgotten && t.Answered < v.Mono && t.Answered > v.Mono-int64(2*time.Second) {
				lost++
			}
		}
		next := slices.IndexFunc(e.events[i+1:], func(w event) bool { return w.Op == opServer && w.Note == noteKill })
		said := slices.ContainsFunc(times, func(t time.Time) bool {
			return t.After(v.Wall) && (next < 0 || t.Before(e.events[i+1+next].Wall))
		})
		switch {
		case lost > 0 && said:
			r.Reported++
		case lost > 0:
			r.Unreported++
			r.violate("the restart at %v lost %d acknowledged tasks, but no peer reported it", v.Wall, lost)
		}
	}
}
