package inbox_test

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/inbox"
)

// kinds takes the waiting items, and returns the kinds of the events; "!" stands for an error.
func kinds(in *inbox.Inbox) (all string) {
	for _, i := range in.Take() {
		if i.Err != nil {
			all += "!"
			continue
		}
		all += string(i.Event.Kind[0])
	}
	return all
}

func event(kind inspect.EventKind, size int) inbox.Item {
	return inbox.Item{Event: inspect.Event{Kind: kind, Queue: "q", Payload: make([]byte, size)}}
}

func TestInbox(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	in := inbox.New([]string{"q"})
	in.Put(event(inspect.EventWork, 0))
	is.Equal(kinds(in), "") // no event before the first sync
	in.Put(event(inspect.EventSync, 0))
	in.Put(event(inspect.EventWork, 0))
	<-in.Some
	is.Equal(kinds(in), "sw")
	is.Equal(kinds(in), "")

	for range 3 {
		in.Put(inbox.Item{Err: errors.New("down")})
	}
	is.Equal(kinds(in), "!") // the last error in a row

	for range 1024 {
		in.Put(event(inspect.EventWork, 0))
	}
	is.Equal(len(in.Take()), 1024)
	for range 1024 {
		in.Put(event(inspect.EventWork, 0))
	}
	in.Put(event(inspect.EventDone, 0))
	is.Equal(kinds(in), "sd") // too many wait

	in.Put(event(inspect.EventDone, 17<<20))
	is.Equal(kinds(in), "d") // a single one may be large
	in.Put(event(inspect.EventDone, 9<<20))
	in.Put(event(inspect.EventWork, 0))
	in.Put(event(inspect.EventCancel, 9<<20))
	is.Equal(kinds(in), "sc") // too many bytes wait
}

func TestLost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var all inbox.All
	of, every, other := inbox.New([]string{"q"}), inbox.New(nil), inbox.New([]string{"r"})
	for _, in := range []*inbox.Inbox{of, every, other} {
		all.Add(in)
		in.Put(event(inspect.EventSync, 0))
	}
	all.Lost("q", "the token fell")
	is.Equal([]string{kinds(of), kinds(every), kinds(other)}, []string{"sl", "sl", "s"})
	all.Remove(of)
	all.Lost("q", "again")
	is.Equal([]string{kinds(of), kinds(every)}, []string{"", "l"})
}

// Nothing replaces the last item, and nothing follows it: otherwise a slow reader would wait forever.
func TestLast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	closed := errors.New("closed")
	in := inbox.New(nil)
	in.Put(event(inspect.EventSync, 0))
	in.Put(inbox.Item{Err: closed, Last: true})
	in.Put(inbox.Item{Err: errors.New("down")})
	for range 2000 {
		in.Put(event(inspect.EventWork, 0))
	}
	all := in.Take()
	is.Equal(len(all), 2)
	is.True(all[1].Last)
	is.Equal(all[1].Err, closed)
}
