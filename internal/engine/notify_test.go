package engine

import (
	"slices"
	"testing"

	"github.com/worqr/worqr/internal/store"
)

// FuzzNotices: anyone may publish anything. A message is parsed or ignored; a cancel that isn't on
// record stops nothing by itself; and nothing panics.
func FuzzNotices(f *testing.F) {
	f.Add([]byte("-99999999999999999999"))
	f.Add([]byte("a"))
	f.Add([]byte("sha1:86f7e437faa5a7fce15d1ddcb9eaeaea377667b8:1"))
	f.Add([]byte{})
	q := lonely(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := q.newSession(Membership{Worker: "w", Round: 1})
		r.silent = true
		task := newAttempt(r, "process", store.Start{Payload: []byte("a"), Token: 1})
		r.held[task.ID] = task
		for _, n := range []store.Notice{store.Woken, store.Work, store.IsCanceled} {
			r.notify(n, data)
		}
		if task.ctx.Err() != nil {
			t.Errorf("%q has stopped a task, and no cancel is on record", data)
		}
		_, named, _ := store.ReadCancel(data)
		asked, want := r.cancels.ask(maxHeard), slices.Contains([]string{hashOf(data).String(), named}, task.digest.String())
		if want != slices.Equal(asked, []string{task.digest.String()}) || !want && asked != nil {
			t.Errorf("of %q received, %q is looked up", data, asked)
		}
	})
}
