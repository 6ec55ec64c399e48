package dash

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
)

// The remaining time of a search is known once its pace is, and until it ends.
func TestLeft(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(result{Seen: 1_000, PerS: 500}.Left(31_000), "1 min")
	is.Equal(result{Seen: 1_000, PerS: 50_000}.Left(31_000), "1 s")
	is.Equal(result{Seen: 1_000}.Left(31_000), "")
	is.Equal(result{Seen: 31_000, PerS: 500}.Left(31_000), "")
	is.Equal(result{Seen: 1_000, PerS: 500, Over: true}.Left(31_000), "")
}

// Pages with the same search share it, and the least recently viewed one makes room.
func TestSearches(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	all := searches{shows: func(id string) bool { return id == "open" }}
	ended := 0
	begin := func(s *search) { s.end = func() { ended++ } }
	first := all.get("", "a", begin)
	is.Equal(all.get("", "a", begin), first)
	is.Equal(all.get(first.id, "a", begin), first)
	is.True(all.get(first.id, "b", begin) != first) // the id of another filter
	first.begun = time.Now().Add(-time.Hour)
	is.Equal(all.get("", "a", begin), first) // a reload doesn't restart the search
	first.over, first.ended = true, time.Now().Add(-time.Minute)
	is.True(all.get("", "a", begin) != first) // an old result is searched for again
	for i := range 2 * mostSearches {
		s := all.get(fmt.Sprint("new", i), "a", begin)
		is.Equal(all.get(s.id, "a", begin), s) // a page whose search has ended begins one, and then shows that one
		s.looked = time.Now().Add(time.Hour)
	}
	is.Equal(len(all.all), mostSearches)
	is.Equal(ended, 2*mostSearches+3-mostSearches)
	open := all.get("open", "b", begin)
	for i := range 2 * mostSearches {
		all.get(fmt.Sprint("other", i), "a", begin)
	}
	is.Equal(all.get("open", "b", begin), open) // who doesn't keep a page open ends no one's search
}

// A reason's newest and oldest tasks are those by when they failed, in whatever order they're listed.
func TestGroupAges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := &search{groups: map[string]*group{}, rows: make([]failedRow, mostRows)}
	at := time.Now()
	for _, ago := range []time.Duration{2, 1, 4, 3} {
		s.note(nil, "q", &inspect.FailedTask{Error: "no", FailedAt: at.Add(-ago * time.Hour)}, true)
	}
	is.Equal(len(s.groups), 1)
	for _, g := range s.groups {
		is.Equal(g.Last, at.Add(-time.Hour))
		is.Equal(g.First, at.Add(-4*time.Hour))
	}
}
