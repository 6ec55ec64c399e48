package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A Finish that is refused and then repeated succeeds, even if the reply is lost.
func TestFinishAfterRefusalAndLostReply(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	added(t, q, "a")
	task := sure(q.StartTask(t.Context()))(t)
	redistest.DoAll(t, c, [][]any{{"RENAME", "p:tasks:{q}", "aside"}, {"SET", "p:tasks:{q}", "of another type"}})
	is.True(task.Finish(t.Context()) != nil) // refused
	redistest.Do(t, c, "RENAME", "aside", "p:tasks:{q}")
	lost := link.LoseReplyTo(task.AttemptID)
	err := task.Finish(t.Context())
	<-lost
	if err != nil {
		t.Errorf("it was finished, and Finish says %v; stats %+v", err, p.Stats())
	}
}

// If Redis loses writes and its token counter goes back, cancels still reach the workers that hold
// tasks.
func TestTokensGoBack(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 2})
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	enqueue(t, q, "a", "b")
	receive(t, starts, 2)
	c := redistest.Conn(t)
	token := sure(redis.Int(c.Do("HGET", prefix+":state:{q}", "token")))(t)
	for range 10 {
		wait(t, cancel(t, q, "none")) // each takes a token
	}
	redistest.Do(t, c, "HSET", prefix+":state:{q}", "token", token)
	wait(t, cancel(t, q, "a"))
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
}

// Redis refuses an outcome whose caller has already returned with ErrUnknownOutcome. Other calls
// still succeed.
func TestRefusedToNobody(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	p := openAt(t, link.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	q := working(t, p, "q")
	enqueue(t, q, "a", "b")
	tasks := sure(q.StartTasks(t.Context(), 2))(t)
	redistest.Do(t, redistest.Dial(t, server.URL()), "SET", "p:process:{q}:"+tasks[0].AttemptID, "foreign")

	lost := link.LoseRepliesTo("\r\n{q}\r\n", 2)
	server.Pause(t) // so that the caller returns before the first reply
	eventually(t, "it is under way", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return is_(tasks[0].Retry(ctx, 0), worqr.ErrUnknownOutcome)
	})
	server.Resume(t)
	<-lost // the third gets its reply
	ended := make(chan error, 1)
	go func() { ended <- tasks[1].Finish(context.Background()) }()
	is.Equal(receive(t, ended, 1), []error{nil})
	err := tasks[0].Retry(t.Context(), 0)
	is.True(err != nil && strings.Contains(err.Error(), "WRONGTYPE"))
}
