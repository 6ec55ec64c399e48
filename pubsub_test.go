package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

func TestEvents(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q") // so a reader of all queues knows it
	binary := []byte("\x00\xff{\"\\\n€")
	ctx, end := context.WithCancel(t.Context())
	var readers []chan inspect.Event
	var reading sync.WaitGroup
	for _, queues := range [][]string{{"q"}, nil} { // one queue, and all
		events := make(chan inspect.Event, 100)
		readers = append(readers, events)
		reading.Go(func() {
			for e, err := range p.Events(ctx, queues...) {
				if err != nil {
					t.Error(err)
				}
				events <- e
			}
		})
	}
	told := func(want inspect.Event) {
		is.Helper()
		for _, events := range readers {
			is.Equal(receive(t, events, 1)[0], want)
		}
	}
	told(inspect.Event{Kind: inspect.EventSync})
	must(t, q.Enqueue(t.Context(), []byte("a"), binary))
	told(inspect.Event{Kind: inspect.EventWork, Queue: "q", Count: 2})
	tasks := sure(q.StartTasks(t.Context(), 2))(t)
	is.NoErr(tasks[0].Finish(t.Context()))
	told(inspect.Event{Kind: inspect.EventDone, Queue: "q", WorkerID: p.WorkerID(), Payload: []byte("a"), PayloadSize: 1})
	tasks[1].Result = binary
	is.NoErr(tasks[1].Finish(t.Context()))
	told(inspect.Event{Kind: inspect.EventDone, Queue: "q", WorkerID: p.WorkerID(), Payload: binary, Result: binary, PayloadSize: len(binary), ResultSize: len(binary)})
	cancel(t, q, "gone")
	told(inspect.Event{Kind: inspect.EventCancel, Queue: "q", Payload: []byte("gone"), PayloadSize: 4})
	is.NoErr(q.Delete(t.Context()))
	told(inspect.Event{Kind: inspect.EventDelete, Queue: "q"})
	redistest.Do(t, redistest.Conn(t), "PUBLISH", prefix+"_{q}_work", "7") // from a producer in another language
	told(inspect.Event{Kind: inspect.EventWork, Queue: "q", Count: 7})
	end()
	reading.Wait()
	for _, queues := range [][]string{{"q"}, nil} { // again; a node may deliver the 7 only now
		for e := range each(t, p.Events(t.Context(), queues...)) {
			is.Equal(e, inspect.Event{Kind: inspect.EventSync})
			break
		}
	}
	for _, err := range p.Events(t.Context(), "bad name") {
		is.True(is_(err, worqr.ErrBadName))
	}
}

// An event of a queue that is named twice is delivered once.
func TestEventsOfAQueueNamedTwice(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	var kinds []inspect.EventKind
	for e := range each(t, p.Events(t.Context(), "q", "other", "q")) {
		kinds = append(kinds, e.Kind)
		if len(kinds) == 1 {
			enqueue(t, q, "x")
			cancel(t, q, "x")
		}
		if e.Kind == inspect.EventCancel {
			break
		}
	}
	is.Equal(kinds, []inspect.EventKind{inspect.EventSync, inspect.EventWork, inspect.EventCancel})
}

// A reader that is too slow, or whose connection breaks, learns that it has missed events.
func TestEventsGap(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p"})
	c := redistest.Dial(t, server.URL())
	publish := func(n int) {
		for i := range n {
			redistest.Do(t, c, "PUBLISH", "p_{q}_work", i)
		}
	}
	syncs, last, errs := 0, -1, 0
	for e, err := range p.Events(t.Context(), "q") {
		switch {
		case err != nil:
			errs++
		case e.Kind == inspect.EventSync:
			syncs++
			switch syncs {
			case 1:
				publish(3000) // while the loop doesn't read
			case 2:
				// Keep reading: the newest events arrive.
			case 3:
				publish(1)
				last = -1
			}
		default:
			last = e.Count
		}
		if syncs == 2 && last == 2999 {
			link.Cut()
		}
		if syncs == 3 && last == 0 {
			break
		}
	}
	is.True(errs > 0)
}

// If Redis refuses every connection for the same reason, the reader gets one error.
func TestEventsTellEachErrorOnce(t *testing.T) {
	is := parallel(t)
	ctx, cancel := context.WithCancel(t.Context())
	var tries atomic.Int64
	p := worqr.New(&redis.Pool{DialContext: func(context.Context) (redis.Conn, error) {
		if tries.Add(1) == 6 {
			cancel()
		}
		return nil, fmt.Errorf("port %d is closed", tries.Load())
	}}, &worqr.Options{Logger: slog.New(slog.DiscardHandler)})
	defer func() { is.NoErr(p.Close()) }()
	var errs []string
	for _, err := range p.Events(ctx, "q") {
		errs = append(errs, fmt.Sprint(err))
	}
	is.Equal(len(errs), 1)
	is.True(strings.Contains(errs[0], "port 1 is closed"))
}

// If the user may not subscribe to some queues, the events of the others come; once it may, all do.
func TestPartlyRefusedEvents(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "ann", "on", ">secret", "~*", "resetchannels", "&p_{a}_*", "&p_{a}", "+@all")
	p := openAt(t, "redis://ann:secret@"+server.Addr(), worqr.Options{Prefix: "p"})
	publish := func(queue string) {
		redistest.Do(t, c, "PUBLISH", "p_{"+queue+"}_work", 1)
	}
	var got []string
	for e, err := range p.Events(t.Context(), "a", "b") {
		switch {
		case err != nil:
			got = append(got, "refused")
		case e.Kind == inspect.EventSync:
			if got = append(got, "sync"); slices.Contains(got, "a") {
				publish("b")
			} else {
				publish("a")
			}
		default:
			got = append(got, e.Queue)
			if e.Queue == "a" {
				redistest.Do(t, c, "ACL", "SETUSER", "ann", "allchannels")
			}
		}
		if got[len(got)-1] == "b" {
			break
		}
	}
	kinds := slices.Compact(got) // one refusal for each channel, and one sync
	is.Equal(kinds, []string{"refused", "sync", "a", "sync", "b"})
}

// Close ends the loops of Events, with ErrShutdown, and their connection.
func TestCloseEndsEvents(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	synced, ended := make(chan bool, 2), make(chan error, 2)
	for _, queues := range [][]string{nil, {"a"}} {
		go func() {
			var last error
			for e, err := range p.Events(t.Context(), queues...) {
				if e.Kind == inspect.EventSync {
					synced <- true
				}
				last = err
			}
			ended <- last
		}()
	}
	receive(t, synced, 2)
	is.NoErr(p.Close())
	for _, err := range receive(t, ended, 2) {
		is.True(errors.Is(err, worqr.ErrShutdown))
	}
	c := redistest.Dial(t, server.URL())
	eventually(t, "the connection is closed", func() bool {
		return strings.Contains(sure(redis.String(c.Do("INFO", "clients")))(t), "connected_clients:1\r\n")
	})
	for _, err := range p.Events(t.Context()) {
		is.True(errors.Is(err, worqr.ErrShutdown))
	}
}

// A new reader doesn't cause an EventSync for the others.
func TestEventsBesideOthers(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	var kinds []inspect.EventKind
	for e := range each(t, p.Events(t.Context(), "q")) {
		if kinds = append(kinds, e.Kind); e.Kind == inspect.EventWork {
			break
		}
		for e := range each(t, p.Events(t.Context(), "q")) {
			is.Equal(e.Kind, inspect.EventSync)
			break
		}
		enqueue(t, q, "a")
	}
	is.Equal(kinds, []inspect.EventKind{inspect.EventSync, inspect.EventWork})
}

// Events end with their context, whether Redis answers or not.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	synced := make(chan string, 1)
	go func() {
		defer close(ended)
		for range p.Events(ctx) {
			synced <- ""
		}
	}()
	receive(t, synced, 1)
	server.Pause(t)
	cancel()
	receiveClosed(t, ended)
	server.Resume(t)
}
