package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/worqr/worqr/cmd/worqr/internal/top"
)

type topCommand struct {
	target
	Every    time.Duration `default:"1s" help:"How often to refresh; the default is 1s."`
	ReadOnly bool          `help:"Disable the keys that change queues."`
}

func (c *topCommand) Validate() error {
	if c.Every < 100*time.Millisecond {
		return usage("--every must be at least 100ms")
	}
	return nil
}

func (c *topCommand) Run(ctx context.Context, con *console, f *fleet) error {
	if !isTerminal(con.out) || !isTerminal(con.in) {
		return errors.New("top needs a terminal; in a script, use: worqr queues --json")
	}
	return top.Run(ctx, &shown{f}, top.Options{
		Every: c.Every, Where: printable(addressOf(c.Redis)), ReadOnly: c.ReadOnly, Show: brief[string], In: con.in, Out: con.out,
	})
}

// shown is the fleet for top.
type shown struct{ *fleet }

func (s *shown) Look(ctx context.Context) (*top.Snapshot, error) {
	names, err := s.names(ctx, nil)
	if err != nil {
		return nil, err
	}
	now := &top.Snapshot{At: time.Now()}
	for row, err := range s.counts(ctx, names) {
		q := top.Queue{Name: row.Queue, QueueStats: row.QueueStats}
		if u := asUnread(err); u != nil {
			q = top.Queue{Name: string(u.queue), Unread: u.err}
		} else if err != nil {
			return nil, err
		}
		now.Queues = append(now.Queues, q)
	}
	now.Workers, now.Unlisted = s.workers(ctx)
	now.Happened, now.Silences, _ = s.Notes(ctx) // both are only shown if they can be read
	now.Server, _ = s.Server(ctx)
	return now, nil
}

func (s *shown) Pause(ctx context.Context, queue string) error { return s.Queue(queue).Pause(ctx) }

func (s *shown) Resume(ctx context.Context, queue string) error { return s.Queue(queue).Resume(ctx) }

func (s *shown) Requeue(ctx context.Context, queue string) (int, error) {
	return s.Queue(queue).RequeueAllFailed(ctx)
}

// addressOf returns a URL without the login and the options.
func addressOf(given string) string {
	scheme, rest, _ := strings.Cut(given, "://")
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
}
