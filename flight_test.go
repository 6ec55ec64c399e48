package worqr

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A worker that leaves may have started a task without knowing it, by a round of which
// both answers were lost. It says nothing more then: it would acknowledge the cancel of
// that task, which goes back with the leave.
func TestCancelOfWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	open := func(url string) *Peer {
		p, err := Open(redistest.Worker(t, url, "p"), &Options{Prefix: "p", Lease: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		is.NoErr(err)
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	p, other := open(link.URL()), open(server.URL()).Queue("q")
	q := p.Queue("q")
	is.NoErr(p.StartWorker(t.Context()))
	is.NoErr(q.StartWork(t.Context()))
	is.NoErr(other.Enqueue(t.Context(), []byte("a")))
	_, err := q.StartTask(t.Context())
	is.NoErr(err)
	r, err := q.rounds()
	is.NoErr(err)
	r.unlisten() // no message has it talk
	hushed(r)
	is.NoErr(other.Enqueue(t.Context(), []byte("b")))
	lost := link.LoseRepliesTo("p:working:{q}:", 2)
	w := &want{n: 1, got: make(chan taken, 1)}
	r.mu.Lock()
	r.wants = append(r.wants, w)
	r.kick()
	r.closing = true // as a leave does
	r.mu.Unlock()
	hushed(r)
	<-lost
	is.True(errors.Is((<-w.got).err, redisconn.ErrUnknown))

	report, err := other.Cancel(t.Context(), []byte("b"))
	is.NoErr(err)
	r.poke() // before the leave goes on
	hushed(r)
	is.NoErr(q.StopWork(t.Context()))
	is.NoErr(report.Wait(t.Context()))
	is.Equal(report.Stopped, 1)
	var waiting []string
	for payload, err := range other.Tasks(t.Context()) {
		is.NoErr(err)
		waiting = append(waiting, string(payload))
	}
	is.Equal(waiting, []string{"a"})
}

// hushed waits until there is nothing more to say.
func hushed(r *rounds) {
	r.mu.Lock()
	silence := r.silence
	r.mu.Unlock()
	if silence != nil {
		<-silence
	}
}
