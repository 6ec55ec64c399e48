package dash

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// A banner explains a problem, with advice.
type banner struct {
	Level  string // "error", "warning" or "notice"
	Kind   string // a finding's kind, or one of the dashboard's own
	Queue  string
	Title  string
	Text   string
	Link   string // to the page that shows or solves it
	Label  string // of the link
	Age    string // of the check that found it; "" if the snapshot shows it
	Others int    // queues with the same problem

	n    int              // the number in Text
	many func(int) string // returns the Text for several queues with the sum of their numbers
}

// What counts as growing: at least this many in a minute.
const (
	manyFailed  = 5
	manyWaiting = 100
)

// banners explains the problems, worst first: those in the snapshot, and others from the last
// check. If queue isn't "", it explains only that queue's.
func (d *dashboard) banners(s *snapshot, queue string) []banner {
	all := d.hooks.banners()
	if s.err != nil {
		all = append(all, away(s))
	}
	if s.unlisted != nil && s.err == nil {
		all = append(all, banner{Level: "error", Kind: "unlisted", Title: "The workers can't be listed", Link: link("workers"), Label: "Workers",
			Text: printable(stopped(s.unlisted.Error())) + " Some of those shown may be gone."})
	}
	for _, q := range s.queues {
		if queue == "" || q.name == queue {
			all = append(all, ofQueue(q)...)
		}
	}
	for i := range s.workers {
		if w := &s.workers[i]; w.StuckHandlers > 0 && (queue == "" || slices.Contains(w.Queues, queue)) {
			all = append(all, stuck(w))
		}
	}
	all = append(all, d.found(s, queue, all)...)
	slices.SortStableFunc(all, func(a, b banner) int { return rank(a.Level) - rank(b.Level) })
	return all
}

func rank(level string) int { return slices.Index([]string{"error", "warning", "notice"}, level) }

// away returns the banner for a Redis that doesn't answer.
func away(s *snapshot) banner {
	b := banner{Level: "error", Kind: "redis", Title: "Redis can't be reached", Link: link("server"), Label: "Server"}
	text := stopped(s.err.Error())
	switch {
	case errors.Is(s.err, worqr.ErrShutdown):
		b.Title = "This process is shutting down"
	case errors.Is(s.err, worqr.ErrLogin):
		b.Title = "Redis refuses the login"
		text += " Check the user and the password that this process uses."
	case errors.Is(s.err, worqr.ErrDenied):
		b.Title = "Redis denies a permission"
		text += " docs/security.md has the rules."
	default:
		text += " Meanwhile, handlers keep running, and no worker is evicted."
	}
	if !s.At.IsZero() {
		text += " This page shows the state at " + s.At.Format("15:04:05") + "."
	}
	b.Text = printable(text)
	return b
}

// stopped ends a text with a full stop, unless it has one: some errors of Redis do.
func stopped(text string) string { return strings.TrimSuffix(text, ".") + "." }

func ofQueue(q *queueState) (all []banner) {
	c, here := q.counts, link("queue", "name", q.name)
	add := func(b banner) {
		b.Queue = q.name
		if b.many != nil {
			b.Text = b.many(b.n)
		}
		all = append(all, b)
	}
	switch {
	case q.err != nil:
		add(banner{Level: "error", Kind: "unreadable", Title: "The counts can't be read", Text: printable(q.err.Error()), Link: link("server"), Label: "Check"})
	case c.Paused && c.Waiting > 0:
		add(banner{Level: "warning", Kind: "paused", Title: "Paused", n: c.Waiting, Link: here, Label: "Resume it there",
			many: func(n int) string { return waiting(n) + ", and none starts until the queue is resumed." }})
	case c.Paused:
		add(banner{Level: "notice", Kind: "paused", Title: "Paused", Text: "No task starts until the queue is resumed.", Link: here, Label: "Resume it there"})
	case c.Workers == 0 && c.Waiting > 0:
		add(banner{Level: "warning", Kind: "no-worker", Title: "No worker", n: c.Waiting, Link: link("workers"), Label: "Workers",
			many: func(n int) string {
				return waiting(n) + ", and no worker serves this queue. Start a peer that handles it."
			}})
	case c.Workers == 0 && c.Scheduled > 0:
		add(banner{Level: "warning", Kind: "no-worker", Title: "No worker", n: c.Scheduled, Link: link("workers"), Label: "Workers",
			many: func(n int) string {
				return words.Counted(n, "task") + " scheduled, and no worker serves this queue. Start a peer that handles it."
			}})
	}
	all = append(all, ofWorkers(q)...)
	if q.grown.failed >= manyFailed {
		add(banner{Level: "warning", Kind: "failed", Title: "Failed tasks are increasing", n: q.grown.failed, Link: link("failed", "name", q.name), Label: "Reasons",
			many: func(n int) string {
				return words.Counted(n, "failed task") + " more than " + about(q.grown.over) + " ago. Fix the cause, then requeue them."
			}})
	}
	if q.grown.waiting >= manyWaiting && q.grown.over >= 20*time.Second && !c.Paused && c.Workers > 0 && c.IdleWorkers == 0 {
		add(banner{Level: "warning", Kind: "backlog", Title: "The backlog is growing", n: q.grown.waiting, Link: here, Label: "Queue",
			many: func(n int) string {
				return words.Counted(n, "task") + " more than " + about(q.grown.over) + " ago, and all workers are busy. Add workers, or find out what slows them down."
			}})
	}
	return all
}

// ofWorkers returns the banners for the problems of a queue's workers.
func ofWorkers(q *queueState) (all []banner) {
	// A worker that has just joined may not be registered yet.
	if n := q.counts.Workers - len(q.workers); n > 0 && q.err == nil && !q.unlisted && (q.missing > 3*time.Second || len(q.workers) == 0) {
		held := "After eviction, the tasks return to the front."
		if len(q.workers) == 0 {
			held = "No worker is left to evict and return the tasks: start a peer."
		}
		all = append(all, banner{Level: "warning", Kind: "suspect", Queue: q.name, Title: "A worker has stopped answering",
			Text: fmt.Sprintf("%s of %d stopped sending heartbeats. %s", words.Counted(n, "worker"), q.counts.Workers, held),
			Link: link("workers", "q", q.name), Label: "Its workers"})
	}
	return all
}

// about formats a duration roughly, since the time between snapshots varies.
func about(d time.Duration) string { return span(max(d.Round(10*time.Second), 10*time.Second)) }

func waiting(n int) string { return words.Tasks(n, "is waiting", "are waiting") }

func stuck(w *inspect.Worker) banner {
	return banner{Level: "warning", Kind: "stuck-handler", Title: "Stuck handlers",
		Text: fmt.Sprintf("%s of %s ignored the end of the context, which costs memory and perhaps more. The log has the stacks: restart the worker, and fix the handler.",
			words.Counted(w.StuckHandlers, "handler"), line(w.Name, 60)),
		Link: link("workers", "q", w.ID), Label: "Worker"}
}

// How many banners of one kind are shown before they're folded into one, and how many in all before the others
// are in a list that can be opened.
const (
	unfolded = 2
	shown    = 2
)

// Folded returns the banners, with similar ones of several queues folded into one.
func (p *page) Folded() folded { return fold(p.Banners) }

// A folded has the worst banners, and the rest.
type folded struct{ First, Rest []banner }

func fold(all []banner) (f folded) {
	same, sum := map[string]int{}, map[string]int{}
	for _, b := range all {
		same[b.Level+b.Kind]++
		sum[b.Level+b.Kind] += b.n
	}
	told := map[string]bool{}
	add := func(b banner) {
		if len(f.First) < shown {
			f.First = append(f.First, b)
		} else {
			f.Rest = append(f.Rest, b)
		}
	}
	for _, b := range all {
		is := b.Level + b.Kind
		switch n := same[is]; {
		case n <= unfolded || b.Queue == "":
			add(b)
		case !told[is]:
			told[is] = true
			if b.Others = n - 1; b.many != nil {
				b.Text = strings.NewReplacer("this queue", "these queues", "the queue is resumed", "they're resumed", "handles it.", "handles them.").Replace(b.many(sum[is]))
			}
			add(b)
		}
	}
	return f
}
