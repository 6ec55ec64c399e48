package worqr_test

import (
	"fmt"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// What a peer notes of its schedules is known when it has closed, in the order in which it happened.
func TestNotesOfSchedules(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	for range 10 {
		p := open(t, worqr.Options{Prefix: prefix})
		for i := range 20 {
			p.ScheduleEnds("q", fmt.Sprint("back ", i))
			p.ScheduleBegins("q", fmt.Sprint("back ", i))
		}
		p.ScheduleBegins("q", "gone")
		p.ScheduleEnds("q", "gone")
		is.NoErr(p.Close())
		happened, _, err := open(t, worqr.Options{Prefix: prefix}).Notes(t.Context())
		is.NoErr(err)
		is.Equal(len(happened), 1)
		is.Equal([]any{happened[0].Kind, happened[0].Queue}, []any{inspect.FindingKind("job-gone"), "q"})

		p = open(t, worqr.Options{Prefix: prefix})
		p.ScheduleBegins("q", "gone")
		is.NoErr(p.Close())
		happened, _, err = open(t, worqr.Options{Prefix: prefix}).Notes(t.Context())
		is.NoErr(err)
		is.Equal(len(happened), 0)
	}
}
