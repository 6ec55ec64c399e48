package store

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// Oldest is the age of the task that waits longest: the front of the list if notes show its age,
// the first added task, or the first overdue one.
func TestOldest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		seed state
		want time.Duration
		id   string // of an item of the stream: minutes from now, or the id
	}{
		{"the first", aged, 9 * time.Minute, ""},
		{"the second", aged.with("token", "=6", "queues", "[b c]"), 5 * time.Minute, ""},
		{"two have returned", aged.with("ages", "(drift=drift:2 -9m=6 -5m=7 -2m=8)"), 9 * time.Minute, ""},
		{"it isn't noted", aged.with("token", "=8"), 0, ""},
		{"nothing waits", aged.with("queues", ""), 0, ""},
		{"there are no notes", aged.with("ages", ""), 0, ""},
		{"no token", aged.with("token", ""), 9 * time.Minute, ""},
		{"no drift", aged.with("ages", "(-5m=6)"), 0, ""},
		{"a token that is no number", aged.with("token", "=x"), 0, ""},
		{"another type", aged.with("ages", "=foreign"), 0, ""},
		{"a note to come", aged.with("ages", "(drift=drift:0 +9m=6)"), 0, ""},
		{"an added task", member, 4 * time.Minute, "-4"},
		{"an added task beside an older one", aged, 9 * time.Minute, "-4"},
		{"an added task beside a younger one", aged.with("token", "=6", "queues", "[b c]"), 8 * time.Minute, "-8"},
		{"an added task to come", member, 0, "4"},
		{"an item of no time", member, 0, "1-1"},
		{"what is overdue", keyX.with("schedule", "(k:x=-7m)"), 7 * time.Minute, ""},
		{"what is overdue beside an older one", aged.with("schedule", "(k:x=-7m)"), 9 * time.Minute, ""},
		{"what is due later", keyX.with("schedule", "(k:x=+7m)"), 0, ""},
		{"what was set aside", keyX.with("schedule", "(k:x=aside:-7m)"), 0, ""},
		{"what has returned has no time of its own", keyX.with("schedule", "(k:x=3)"), 0, ""},
		{"what has returned, beside what is overdue", keyX.with("schedule", "(k:x=3 k:y=-7m)"), 7 * time.Minute, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, c.seed)
			if minutes, err := strconv.Atoi(c.id); err == nil {
				c.id = fmt.Sprintf("%d-1", e.now()+int64(minutes)*60_000)
			}
			if c.id != "" {
				e.must(e.conn.Do("XADD", e.q.Added(), c.id, "0000000000000"+"0", "a"))
			}
			counts := sure(Count(e.ctx, e.line, e.q))(t)
			e.is.Equal(counts.Oldest.Round(time.Minute), c.want)
		})
	}
}
