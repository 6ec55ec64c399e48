package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// restarts has Redis be killed and come back with what it has kept. With AOF
// always that is all that was acknowledged. With the others the peers live on,
// and every task that was lost is named.
func restarts(o options) *report {
	arenas := min(max(o.restarts/5, 1), 5)
	o.peers = min(o.peers, 4)
	r := several(arenas, func(number int) *report {
		s := setup{
			durability: o.fsync, alive: true, forgets: o.fsync != always, tail: 2*o.lease + time.Second,
			spec: peerSpec{Every: 20 * time.Millisecond, Batch: 5, Nap: 20 * time.Millisecond},
		}
		return play(o, number, s, func(a *arena) error {
			n := a.restarts / arenas
			if number < a.restarts%arenas {
				n++
			}
			for range n {
				pause(a.between(a.lease, 4*a.lease))
				if err := a.restart(a.between(0, 2*a.lease)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return r
}

// restart kills the server and has it come back after a while.
func (a *arena) restart(after time.Duration) error {
	if err := a.server.note(); err != nil {
		return err
	}
	a.journal.say(event{Op: opServer, Note: "kill"})
	a.server.kill()
	pause(after)
	a.report.Restarts++
	if err := a.server.launch(); err != nil {
		return err
	}
	a.journal.say(event{Op: opServer, Note: "back"})
	return nil
}

// saying counts the lines of the peers' logs that contain a text.
func (a *arena) saying(text string) (lines int, err error) {
	paths, err := filepath.Glob(filepath.Join(a.dir, "*.log"))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return 0, fmt.Errorf("read a log: %w", err)
		}
		for l := bufio.NewScanner(f); l.Scan(); {
			if strings.Contains(l.Text(), text) {
				lines++
			}
		}
		_ = f.Close() // it was only read
	}
	return lines, nil
}
