package api

import (
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// Add replaces the task that waits under its key, or keeps what it is told to. TestRules of integration/scripts has all cases.
func TestPut(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour).Truncate(time.Millisecond) }
	for name, c := range map[string]struct {
		opts    worqr.TaskSpec
		payload string
		hour    int // when it's due, from now
		retries int
	}{
		"no options":               {worqr.TaskSpec{}, "new", 0, 0},
		"keep the payload":         {worqr.TaskSpec{At: at(9), KeepPayload: true}, "old", 9, 1},
		"keep the counts":          {worqr.TaskSpec{At: at(9), KeepCounts: true}, "new", 9, 1},
		"keep the time":            {worqr.TaskSpec{At: at(9), Reschedule: worqr.RescheduleNever}, "new", 5, 0},
		"if earlier, and it isn't": {worqr.TaskSpec{At: at(9), Reschedule: worqr.RescheduleIfEarlier}, "new", 5, 0},
		"if later, and it isn't":   {worqr.TaskSpec{At: at(2), Reschedule: worqr.RescheduleIfLater}, "new", 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			q := working(t, open(t, worqr.Options{}), "q")
			add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("old")})
			is.NoErr(take(t, q).Retry(t.Context(), time.Until(at(5))))
			add(t, q, named("k", "new", c.opts))

			all := peertest.Named(t, q)
			is.Equal(len(all), 1)
			is.Equal(string(all[0].Payload), c.payload)
			is.Equal(all[0].Retries, c.retries)
			is.True(near(all[0].DueAt, at(c.hour)) || c.hour == 0 && all[0].DueAt.IsZero())
		})
	}
}
