package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A workerRow is one registered peer.
type workerRow struct {
	ID        blob      `json:"id"`
	Name      blob      `json:"name"`
	Host      blob      `json:"host"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at,omitzero"`
	Version   blob      `json:"version"`
	Protocol  int       `json:"protocol"`
	Lease     seconds   `json:"lease_seconds"`
	Stuck     int       `json:"stuck_handlers"`
	Queues    []string  `json:"queues"`
}

func workerRowOf(w inspect.Worker) workerRow {
	return workerRow{blob(w.ID), blob(w.Name), blob(w.Host), w.PID, w.StartedAt.UTC(), blob(w.Version), w.Protocol, seconds(w.Lease), w.StuckHandlers, w.Queues}
}

type workersCommand struct {
	target
	form
}

// Run prints a line for each worker.
func (c *workersCommand) Run(ctx context.Context, con *console) error {
	f, err := c.fleet()
	if err != nil {
		return err
	}
	defer f.close()
	n, err := printRows(con.out, c.form, "ID NAME HOST PID UP VERSION LEASE STUCK QUEUES", turned(f.Workers(ctx), workerRowOf), func(w workerRow) []string {
		return []string{printable(w.ID), brief(w.Name, 30), brief(w.Host, 30), strconv.Itoa(w.PID), sinceMoment(w.StartedAt), brief(w.Version, 20), age(timeOf(w.Lease)), strconv.Itoa(w.Stuck), brief(strings.Join(w.Queues, ","), 60)}
	})
	if err == nil && n == 0 {
		con.say("no workers under the prefix %q; start a peer, or: worqr work QUEUE -- command", c.Prefix)
	}
	return err
}

func timeOf(s seconds) time.Duration { return time.Duration(s) }
