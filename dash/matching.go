package dash

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/words"
)

// matching requeues or deletes the tasks that a filter matches.
func matching(ctx context.Context, d *dashboard, form url.Values) (n int, err error) {
	f, err := filtered(form)
	if err != nil {
		return uncounted, mistake(stopped(err.Error()) + " Nothing was done.")
	}
	q := d.peer.Queue(form.Get("name"))
	one, all, did := q.RequeueFailed, q.RequeueAllFailed, "requeued"
	if Verb(form.Get("verb")) == DiscardMatching {
		one, all, did = q.DeleteFailed, q.DeleteAllFailed, "deleted"
	}
	if f.any() {
		n, err = all(ctx)
	} else {
		n, err = d.each(ctx, q, f, one)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = mistake(fmt.Sprintf("After %v, %s were %s. Repeat the action for the rest.", actTimeout, words.Counted(n, "task"), did))
	}
	return n, err
}

// atATime is how many failed tasks one call acts on.
const atATime = 500

// each calls do for the tasks that a filter matches, many at a time. Tasks that fail meanwhile stay.
func (d *dashboard) each(ctx context.Context, q *worqr.Queue, f *filter, do func(context.Context, ...string) (int, error)) (n int, err error) {
	var ids []string
	flush := func() error {
		more, err := do(ctx, ids...)
		n, ids = n+more, ids[:0]
		return err
	}
	for t, err := range q.Failed(ctx) {
		if err != nil {
			return n, err
		}
		if !f.picks(d, q.Name(), &t) {
			continue
		}
		if ids = append(ids, t.ID); len(ids) == atATime {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	if len(ids) > 0 {
		err = flush()
	}
	return n, err
}
