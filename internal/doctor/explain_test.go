package doctor

import (
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
)

// TestReasons checks why a copy doesn't run, for each state of the queue.
func TestReasons(t *testing.T) {
	t.Parallel()
	at := now.UnixMilli()
	serving := store.Place{Now: at, Workers: 2, Idle: 1}
	with := func(p store.Place, change func(*store.Place)) *store.Place {
		change(&p)
		return &p
	}
	entry := func(p store.Place, e store.Entry) *store.Place {
		p.Entries = []store.Entry{e}
		return &p
	}
	for name, test := range map[string]struct {
		place *store.Place
		byKey bool
		want  string
	}{
		"first":                          {place: with(serving, func(p *store.Place) { p.Before = []int{0} }), want: "waiting[] "},
		"behind":                         {place: with(serving, func(p *store.Place) { p.Before = []int{0}; p.Ready = 1 }), want: "waiting[behind] "},
		"all are busy":                   {place: with(serving, func(p *store.Place) { p.Before = []int{0}; p.Idle = 0 }), want: "waiting[busy] "},
		"no worker":                      {place: with(serving, func(p *store.Place) { p.Before = []int{0}; p.Workers, p.Idle = 0, 0 }), want: "waiting[no-worker] "},
		"paused":                         {place: with(serving, func(p *store.Place) { p.Before = []int{0, 3}; p.Paused = true }), want: "waiting[paused] waiting[paused behind] "},
		"due":                            {place: entry(serving, store.Entry{Due: 5}), want: "scheduled[] "},
		"not due":                        {place: entry(serving, store.Entry{Due: at + 1}), want: "scheduled[not-due] "},
		"suspect":                        {place: entry(serving, store.Entry{Due: at, Crashes: 2}), want: "scheduled[suspect] "},
		"a task with its key is running": {place: entry(serving, store.Entry{Due: at, Process: "x", Before: -1}), byKey: true, want: "blocked[blocked] running[] "},
		"only what runs":                 {place: entry(serving, store.Entry{Due: -1, Process: "x"}), byKey: true, want: "running[] "},
	} {
		got := ""
		for _, c := range explained(test.place, test.byKey).Copies {
			got += fmt.Sprint(c.State, c.Reasons, " ")
		}
		if got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestHeld checks what happens to a task whose worker is gone, and when.
func TestHeld(t *testing.T) {
	t.Parallel()
	at := now.UnixMilli()
	for name, test := range map[string]struct {
		holder  store.Holder
		workers int
		want    string
		evict   time.Duration
	}{
		"it beats":           {holder: store.Holder{Member: true, Until: at + 1}, workers: 1, want: "[]"},
		"it was not judged":  {holder: store.Holder{Member: true, Until: at - 1}, workers: 1, want: "[lease-expired]", evict: 2 * time.Second},
		"it is a suspect":    {holder: store.Holder{Member: true, Until: at - 1, Suspect: true, Judged: at}, workers: 1, want: "[lease-expired]", evict: time.Second},
		"no peer evicts":     {holder: store.Holder{Member: true, Until: at - 1, Suspect: true, Judged: at}, want: "[lease-expired no-worker]"},
		"it is returned":     {holder: store.Holder{Suspect: true}, workers: 1, want: "[returning]"},
		"no peer returns it": {holder: store.Holder{Suspect: true}, want: "[returning no-worker]"},
		"it is not a member": {holder: store.Holder{}, workers: 1, want: "[]"},
	} {
		c := inspect.TaskCopy{State: inspect.CopyRunning}
		(&explanation{inspect.Explanation{At: time.UnixMilli(at), Workers: test.workers}}).held(&c, test.holder, time.Second)
		if got := fmt.Sprint(c.Reasons); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
		if test.evict > 0 && !c.EvictAt.Equal(now.Add(test.evict)) || test.evict == 0 && !c.EvictAt.IsZero() {
			t.Errorf("%s: evicted at %v", name, c.EvictAt)
		}
	}
}
