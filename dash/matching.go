package dash

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/words"
)

// matching requeues or deletes the tasks that a search finds, in the background. The form has it as the query of the page.
func matching(ctx context.Context, d *dashboard, form url.Values) (int, error) {
	verb, name := Verb(form.Get("verb")), form.Get("name")
	search, err := url.ParseQuery(form.Get("search"))
	if err != nil || !form.Has("search") { // an empty one finds all
		return uncounted, sentence("This page is out of date: reload it. Nothing was done.")
	}
	f, err := filtered(search)
	if err != nil {
		return uncounted, sentence(words.Stopped(err.Error()) + " Nothing was done.")
	}
	q := d.peer.Queue(name)
	one, all := q.RequeueFailed, q.RequeueAllFailed
	if verb == DiscardMatching {
		one, all = q.DeleteFailed, q.DeleteAllFailed
	}
	j := d.jobs.start(verb, name, func(ctx context.Context, j *job) error {
		if f.any() {
			n, err := all(ctx)
			j.add(n, n)
			return err
		}
		return d.each(ctx, q, f, j, one)
	})
	if j == nil {
		return uncounted, sentence("The last action on all matching tasks of this queue is still running. Wait for it, or stop it.")
	}
	await(ctx, j.done, 500*time.Millisecond) // most have ended by then, and the page shows it
	return uncounted, nil
}

// each calls do for the tasks that a filter matches, many at a time. Tasks that fail meanwhile stay.
func (d *dashboard) each(ctx context.Context, q *worqr.Queue, f *filter, j *job, do func(context.Context, ...string) (int, error)) error {
	var ids []string
	seen := 0
	flush := func() error {
		if len(ids) == 0 {
			j.add(seen, 0)
			seen = 0
			return nil
		}
		n, err := do(ctx, ids...)
		j.add(seen, n)
		ids, seen = ids[:0], 0
		return err
	}
	for t, err := range q.Failed(ctx) {
		if err != nil {
			return errors.Join(flush(), err)
		}
		seen++
		picked, err := f.picks(d, q.Name(), &t, ctx.Err)
		if err != nil {
			return errors.Join(flush(), err)
		}
		if picked {
			ids = append(ids, t.ID)
		}
		if len(ids) >= 500 || seen >= 5_000 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
