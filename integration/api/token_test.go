package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Redis has lost writes, and its tokens went back: cancels still reach who
// holds something.
func TestTokensGoBack(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 2})
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	enqueue(t, q, "a", "b")
	receive(t, starts, 2)
	for range 10 {
		wait(t, cancel(t, q, "none")) // each has a token
	}
	c := redistest.Conn(t)
	redistest.Do(t, c, "SET", prefix+":token:{q}", 2)
	redistest.Do(t, c, "ZADD", prefix+":holders:{q}", 2, p.WorkerID()) // or else, only a message tells it
	wait(t, cancel(t, q, "a"))
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
}

// An end that is refused when its caller has long gone, and was told that it is
// unknown: others go on.
func TestRefusedToNobody(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, "a", "b")
	tasks := sure(q.StartTasks(t.Context(), 2))(t)
	redistest.Do(t, redistest.Dial(t, server.URL()), "SET", "p:process:{q}:"+tasks[0].AttemptID, "foreign")

	lost := link.LoseRepliesTo("p:working:{q}:", 2)
	server.Pause(t) // so that the caller goes before the first of them
	eventually(t, "it is under way", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return is_(tasks[0].Finish(ctx), worqr.ErrUnknownOutcome)
	})
	server.Resume(t)
	<-lost // and the third is answered
	ended := make(chan error, 1)
	go func() { ended <- tasks[1].Finish(context.Background()) }()
	is.Equal(receive(t, ended, 1), []error{nil})
	err := tasks[0].Finish(t.Context())
	is.True(err != nil && strings.Contains(err.Error(), "WRONGTYPE"))
}
