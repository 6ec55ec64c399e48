package store

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redistest"
)

// Who adds to queues of ever new names remembers only some of them. The others are listed
// and kept in order as well, and found again.
func TestManyQueueNames(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dial, err := DialURL(redistest.Start(t).URL(), nil) // the tables run on what is no whole Redis, too
	is.NoErr(err)
	log := logs.New(slog.New(slog.DiscardHandler))
	l := NewLines(dial, log, DefaultTimeout, time.Second)
	t.Cleanup(l.Close)
	s := SpaceOf(redistest.Prefix(t))
	p := NewProducer(l, s, log)
	enqueue := func(name, first, second string) {
		is.NoErr(p.Enqueue(t.Context(), Target{name, name, s.Queue(name)}, [][]byte{[]byte(first), []byte(second)}))
	}
	for i := range 3 * mostKnown {
		enqueue(fmt.Sprint(i), "a", "b")
	}
	is.Equal(len(p.all), mostKnown)
	for i := range 10 {
		name := fmt.Sprint(i)
		enqueue(name, "c", "d")
		var got []string
		for payload, err := range Tasks(t.Context(), l.Calls, s.Queue(name)) {
			is.NoErr(err)
			got = append(got, string(payload))
		}
		is.Equal(got, []string{"a", "b", "c", "d"})
	}
	is.Equal(len(p.all), mostKnown)
	listed := 0
	for _, err := range Queues(t.Context(), l.Calls, s) {
		is.NoErr(err)
		listed++
	}
	is.Equal(listed, 3*mostKnown)
}
