package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/worqr/worqr/internal/words"
)

type failWorkerCommand struct {
	target
	form
	confirmation
	Worker string `arg:"" help:"Id or name of the worker, as \"worqr workers\" shows them."`
}

func (c *failWorkerCommand) Validate() error {
	if c.Worker == "" || strings.Contains(c.Worker, "://") {
		return usage("expected the id or the name of a worker")
	}
	return c.given(c.Worker)
}

func (c *failWorkerCommand) Run(ctx context.Context, con *console, f *fleet) (err error) {
	id, who, several := "", "", false
	for w, err := range f.Workers(ctx) {
		switch {
		case err != nil:
			return err
		case w.ID != c.Worker && (w.Name != c.Worker || id == c.Worker):
		default:
			several = id != "" && w.ID != c.Worker
			id, who = w.ID, fmt.Sprintf(" (%s, pid %d on %s)", w.Name, w.PID, w.Host)
		}
	}
	if several {
		return fmt.Errorf("several workers have the name %q; give an id; to list them, use: worqr workers", c.Worker)
	}
	listed := id != ""
	if listed {
		err = c.ask(ctx, con, c.Worker, "evict the worker "+id+who+" and return its tasks")
	} else {
		id = c.Worker // it may still have tasks
		err = c.askFor(ctx, con, c.Worker, unknown, "evict that id anyway")
	}
	if err != nil {
		return err
	}
	n, err := f.FailWorker(ctx, id)
	if err != nil {
		return c.cutOff(con.out, err, n, words.Counted(n, "task")+" returned", map[string]any{"worker": id, "returned": n})
	}
	if !listed && n == 0 {
		return nothing("no such worker exists, or it has gone; list the workers with: worqr workers")
	}
	return c.tell(con.out, map[string]any{"worker": id, "returned": n}, "%s returned", words.Counted(n, "task"))
}
