package engine

import (
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A task with a card has its own limits, and its end tells Redis where it came from.
func TestAttemptWithCard(t *testing.T) {
	t.Parallel()
	r := byHand(t)
	of := Options{Timeout: time.Minute, MaxRetries: 3, Grace: time.Second}
	for name, c := range map[string]struct {
		start store.Start
		want  Options
	}{
		"of the list":    {store.Start{}, of},
		"without a card": {store.Start{Entry: "k:a"}, of},
		"a damaged card": {store.Start{Entry: "k:a", Card: "0t"}, of},
		"a timeout":      {store.Start{Entry: "k:a", Added: true, Card: "0t4:1500"}, Options{Timeout: 1500 * time.Millisecond, MaxRetries: 3, Grace: time.Second}},
		"retries":        {store.Start{Entry: "k:a", Card: "0m1:7"}, Options{Timeout: time.Minute, MaxRetries: 7, Grace: time.Second}},
		"of what failed": {store.Start{Entry: "k:a", Card: "0t1:1m1:7", Failure: &store.FailedTask{}}, of},
		"no retries":     {store.Start{Entry: "k:a", Card: "0m1:0"}, Options{Timeout: time.Minute, MaxRetries: -1, Grace: time.Second}},
	} {
		a := newAttempt(r, "p", c.start)
		got := a.options(&of)
		if got.Timeout != c.want.Timeout || got.MaxRetries != c.want.MaxRetries || got.Grace != c.want.Grace {
			t.Errorf("%s: %v, %d retries, grace %v", name, got.Timeout, got.MaxRetries, got.Grace)
		}
		o := a.outcome(store.Outcome{Verb: store.Finish})
		if o.Added != c.start.Added || o.Plain != (c.start.Entry == "") {
			t.Errorf("%s: its end is of an added task: %t, of the list: %t", name, o.Added, o.Plain)
		}
	}
	if of.Timeout != time.Minute || of.MaxRetries != 3 {
		t.Errorf("the options of the queue changed: %+v", of)
	}
	a := newAttempt(r, "p", store.Start{Entry: "k:019ab697-e800-7012-8004-133456789abc", ByKey: true, Card: "0h1:av1:b", Error: "bad", Due: 5})
	if a.Card.Headers["a"] != "b" || a.Card.Since != 1764000000000 || a.Error != "bad" || a.Due != 5 {
		t.Errorf("%+v, %q, due %d", a.Card, a.Error, a.Due)
	}
}
