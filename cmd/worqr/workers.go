package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/worqr/worqr/inspect"
)

type workersCommand struct {
	target
	form
}

func (c *workersCommand) Run(ctx context.Context, con *console, f *fleet) error {
	n, err := printRows(con.out, c.form, "ID NAME HOST PID UP BEAT VERSION LEASE SLOTS STUCK QUEUES", f.Workers(ctx), func(w inspect.Worker) []string {
		return []string{
			printable(w.ID), brief(w.Name, 30), brief(w.Host, 30), strconv.Itoa(w.PID), sinceMoment(w.StartedAt), sinceMoment(w.LastHeartbeat),
			brief(w.Version, 20), age(w.Lease), strconv.Itoa(w.Slots), strconv.Itoa(w.StuckHandlers), brief(strings.Join(w.Queues, ","), 60),
		}
	})
	if err == nil && n == 0 {
		con.say("no workers under the prefix %q; start a peer, or: worqr work QUEUE -- command", c.Prefix)
	}
	return err
}
