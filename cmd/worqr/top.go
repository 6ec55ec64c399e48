package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/worqr/worqr/cmd/worqr/internal/top"
	"github.com/worqr/worqr/inspect"
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
	return top.Run(ctx, &shown{fleet: f}, top.Options{
		Every: c.Every, Where: printable(addressOf(c.Redis)), ReadOnly: c.ReadOnly, Show: brief[string], In: con.in, Out: con.out,
	})
}

// shown is the fleet for top.
type shown struct {
	*fleet
	hour  time.Time
	usual map[string]inspect.Usual // by queue, in this hour
}

func (s *shown) Look(ctx context.Context) (*top.Snapshot, error) {
	names, err := s.names(ctx, nil)
	if err != nil {
		return nil, err
	}
	now, asked := &top.Snapshot{At: time.Now()}, false
	if hour := now.At.Truncate(time.Hour); hour != s.hour {
		s.hour, s.usual = hour, map[string]inspect.Usual{}
	}
	for row, err := range s.counts(ctx, names) {
		q := top.Queue{Name: row.Queue, QueueStats: row.QueueStats}
		if u := asUnread(err); u != nil {
			q = top.Queue{Name: string(u.queue), Unread: u.err}
		} else if err != nil {
			return nil, err
		}
		if _, known := s.usual[q.Name]; !known && !asked && (q.Failed > 0 || q.Waiting > 0 && q.IdleWorkers == 0) { // one in a look
			asked = true
			if hours, err := s.Queue(q.Name).History(ctx, s.hour.Add(-24*time.Hour), s.hour, time.Hour); err == nil {
				s.usual[q.Name] = inspect.UsualOf(hours)
			}
		}
		q.Usual = s.usual[q.Name]
		now.Queues = append(now.Queues, q)
	}
	now.Workers, now.Unlisted = s.workers(ctx)
	now.Happened, now.Silences, now.Unnoted = s.Notes(ctx)
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
