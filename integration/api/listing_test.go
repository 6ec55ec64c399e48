package api

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
)

// What is listed is in order: waiting, running and failed.
func TestListing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	all := numbers("", 230) // more than two pages
	enqueue(t, q, all...)
	is.Equal(waiting(t, q), all)
	tasks, err := q.StartTasks(ctx, 210)
	is.NoErr(err)
	is.Equal(waiting(t, q), all[210:])
	running := func() (payloads []string) {
		for r, err := range q.Running(ctx) {
			is.NoErr(err)
			payloads = append(payloads, string(r.Payload))
		}
		return payloads
	}
	is.Equal(running(), all[:210])
	for _, task := range tasks[:105] {
		is.NoErr(task.Fail(ctx, errors.New("no")))
	}
	is.Equal(running(), all[105:210])
	got := failedPayloads(t, q)
	slices.Reverse(got)
	is.Equal(got, all[:105])
	for i, task := range tasks[105:] {
		is.NoErr(task.Retry(ctx, time.Hour+time.Duration(i)*time.Second))
	}
	got = nil
	for _, s := range scheduled(t, q) {
		is.Equal(s.Key, "")
		is.Equal(s.Retries, 1)
		got = append(got, string(s.Payload))
	}
	is.Equal(got, all[105:210])
	is.Equal(waiting(t, q), append(slices.Clone(all[210:]), all[105:210]...))
	// Whoever has seen enough may stop.
	for range q.Tasks(ctx) {
		break
	}
	for range q.Scheduled(ctx) {
		break
	}
	for range q.Failed(ctx) {
		break
	}
	// An error comes last.
	done, cancel := context.WithCancel(ctx)
	cancel()
	n := 0
	for _, err := range q.Failed(done) {
		is.True(err != nil)
		n++
	}
	for _, err := range q.Scheduled(done) {
		is.True(err != nil)
		n++
	}
	is.Equal(n, 2)
}
