package logs

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

// The losses of a failover are logged once, whatever the signs and however many queues are
// affected.
func TestRollbackIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		log := New(slog.New(slog.DiscardHandler))
		lines := make(chan string, 10)
		log.Before = func(_ string, attrs []any) { lines <- strings.TrimSpace(fmt.Sprintln(attrs...)) }
		said := func() (all []string) {
			for len(lines) > 0 {
				all = append(all, <-lines)
			}
			return all
		}
		r := NewRollback(log, time.Second)
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		r.Note("b", "a token")
		r.Note("a", "a heartbeat")
		pass(500 * time.Millisecond)
		r.Note("b", "a heartbeat")
		r.Note("c", "a round")
		is.Equal(said(), nil)
		pass(600 * time.Millisecond)
		is.Equal(said(), []string{"queues [a b c] count 3 evidence a token"})
		pass(5 * time.Second) // a new master refuses heartbeats at first
		r.Note("a", "a token")
		r.Note("b", "a round")
		pass(2 * time.Second)
		is.Equal(said(), nil)

		r.Note("d", "a heartbeat") // another node may take longer
		r.Flush()                  // and the peer stops
		is.Equal(said(), []string{"queues [d] count 1 evidence a heartbeat"})
		pass(2 * time.Second)
		is.Equal(said(), nil)

		is.True(r.Note("a", "a token")) // which it had shown already: the next failover came soon
		is.True(!r.Note("a", "a round"))
		is.True(r.Note("a", "a token")) // and another
		pass(2 * time.Second)
		is.Equal(said(), []string{"queues [a] count 1 evidence a token"})

		pass(10 * time.Second)
		r.Note("a", "a heartbeat") // the next failover
		pass(2 * time.Second)
		is.Equal(said(), []string{"queues [a] count 1 evidence a heartbeat"})

		pass(time.Minute)
		for i := range 1000 {
			r.Note(fmt.Sprintf("q%03d", i), "a heartbeat")
		}
		pass(2 * time.Second)
		is.Equal(said(), []string{"queues [q000 q001 q002 q003 q004 q005 q006 q007 q008 q009 q010 q011 q012 q013 q014 q015 q016 q017 q018 q019] count 1000 evidence a heartbeat"})
	})
}

// With a lease of hours, the line doesn't wait for a heartbeat, and a heartbeat doesn't repeat it.
func TestRollbackOfLongLease(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for beat, want := range map[time.Duration][2]time.Duration{
		time.Second / 3:  {time.Second / 3, 10 * time.Second},
		time.Second:      {time.Second, 10 * time.Second},
		20 * time.Minute: {time.Second, time.Hour},
	} {
		r := NewRollback(nil, beat)
		is.Equal([2]time.Duration{r.pause, r.span}, want)
	}
}
