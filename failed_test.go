package worqr_test

import (
	"errors"
	"testing"

	"github.com/worqr/worqr"
)

// No ids are none, not all; unknown ones are passed over. The rest is in TestRandom.
func TestDeleteAndRequeueNone(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a", "b")
	for _, task := range sure(q.StartTasks(ctx, 2))(t) {
		is.NoErr(task.Fail(ctx, errors.New("no")))
	}
	for _, ids := range [][]string{nil, {}, {"unknown", ""}} {
		is.Equal(sure(q.RequeueFailed(ctx, ids...))(t), 0)
		is.Equal(sure(q.DeleteFailed(ctx, ids...))(t), 0)
	}
	is.Equal(failedPayloads(t, q), []string{"b", "a"}) // newest first
	id := failed(t, q)[0].ID
	is.Equal(sure(q.RequeueFailed(ctx, id, "unknown", id))(t), 1)
	is.Equal(waiting(t, q), []string{"b"})
}
