package worqr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A worker that can't name all that runs says nothing of the rest: neither for the last
// cancel, nor for an earlier one of the same payload that somebody waits for.
func TestStoppingInParts(t *testing.T) {
	held := map[string]*Task{}
	for i, id := range []string{"p1", "p2"} {
		held[id] = &Task{Token: int64(1 + i), start: &start{covered: []store.Cancellation{{Name: "a", Token: 4}}}}
	}
	runs, at := stopping(held, 4, 1)
	if len(runs) != 1 {
		t.Fatal(runs)
	}
	said(runs, held)
	for id, task := range held {
		if id != runs[0].Process && at > task.Token {
			t.Errorf("it says that up to %d nothing else runs, and %s of the token %d does", at, id, task.Token)
		}
	}
	if runs, at := stopping(held, 4, 1); len(runs) != 1 || at != 4 {
		t.Error("the rest:", runs, at)
	}
}

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

// A nosy is an error whose methods use the peer.
type nosy struct{ ask func() }

func (n *nosy) Error() string { n.ask(); return "nosy" }

func (n *nosy) Is(error) bool { n.ask(); return false }

// The cause with which a context ends is user code. Its methods may use the peer and the
// task, so nobody asks them anything under a lock: whether the end was said or not.
func TestCauseUsesPeer(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]bool{"said": true, "not said": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			link := redistest.NewLink(t, server.Addr())
			p, err := Open(redistest.Worker(t, link.URL(), "p"), &Options{Prefix: "p", Lease: time.Hour, Logger: slog.New(slog.DiscardHandler)})
			is.NoErr(err)
			t.Cleanup(func() { _ = p.Close() })
			q := p.Queue("q")
			is.NoErr(p.StartWorker(t.Context()))
			is.NoErr(q.StartWork(t.Context()))
			is.NoErr(q.Enqueue(t.Context(), []byte("a")))
			task, err := q.StartTask(t.Context())
			is.NoErr(err)
			r, err := q.rounds()
			is.NoErr(err)
			hushed(r)
			if !said {
				r.mu.Lock()
				r.silent = true
				r.mu.Unlock()
			}
			link.Deafen(true)
			defer link.Deafen(false)
			over, end := context.WithCancel(t.Context())
			end()
			ctx, cancel := context.WithCancelCause(t.Context())
			asked := false
			gone := make(chan error)
			go func() { gone <- task.Finish(ctx) }()
			for left := said; left; { // until it is said
				r.mu.Lock()
				left = len(r.outcomes) > 0 || r.silence == nil
				r.mu.Unlock()
			}
			cancel(&nosy{func() {
				if !asked {
					asked = true
					_ = task.Finish(over)
				}
			}})
			select {
			case err = <-gone:
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
			is.Equal(errors.Is(err, ErrUnknownOutcome), said)
			is.True(strings.Contains(err.Error(), "nosy"))
			is.True(asked)
			r.mu.Lock()
			r.silent = false
			r.mu.Unlock()
		})
	}
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

// Who waits for tasks of which the answer came too late is told that they may have been
// started, when the worker is found to be evicted then.
func TestLateStartIsUnknown(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(r *rounds, e *exchange){
		"by a beat":  func(r *rounds, _ *exchange) { r.end(ErrEvicted) },
		"by a round": func(r *rounds, e *exchange) { r.release(e, ErrEvicted) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			p, err := Open(redistest.URL(), &Options{Prefix: redistest.Prefix(t), Logger: slog.New(slog.DiscardHandler)})
			is.NoErr(err)
			t.Cleanup(func() { _ = p.Close() })
			q := p.Queue("q")
			for _, late := range []bool{true, false} {
				is.NoErr(p.StartWorker(t.Context()))
				is.NoErr(q.StartWork(t.Context()))
				r, err := q.rounds()
				is.NoErr(err)
				hushed(r)
				w := &want{n: 1, got: make(chan taken, 1)}
				e := &exchange{wants: []*want{w}}
				r.mu.Lock()
				r.distribute(e, nil, &store.Answer{Again: true}, late)
				r.mu.Unlock()
				lose(r, e)
				r.end(ErrEvicted)
				got := (<-w.got).err
				is.True(errors.Is(got, ErrEvicted))
				is.Equal(errors.Is(got, redisconn.ErrUnknown), late)
				is.NoErr(p.StopWorker(t.Context()))
			}
		})
	}
}

// The error of a Pool is user code, too: nobody asks its methods anything under a lock.
func TestPoolErrorUsesPeer(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(r *rounds, e *exchange, err error){
		"not sent": func(r *rounds, e *exchange, err error) { r.restore(e, err) },
		"no reply": func(r *rounds, e *exchange, err error) {
			r.release(e, fmt.Errorf("%w: %w", redisconn.ErrUnknown, err))
		},
	} {
		for _, ended := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", ended ", ended), func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				p, err := Open(redistest.URL(), &Options{Prefix: redistest.Prefix(t), Logger: slog.New(slog.DiscardHandler)})
				is.NoErr(err)
				t.Cleanup(func() { _ = p.Close() })
				q := p.Queue("q")
				is.NoErr(p.StartWorker(t.Context()))
				is.NoErr(q.StartWork(t.Context()))
				r, err := q.rounds()
				is.NoErr(err)
				hushed(r)
				if ended {
					r.end(ErrEvicted)
				}
				w := &want{n: 1, begun: true, got: make(chan taken, 1)}
				s := &settlement{done: make(chan settled, 1)}
				e := &exchange{wants: []*want{w}, outcomes: []*settlement{s}}
				if ended {
					a := &attempt{task: &Task{start: &start{rounds: r}}, service: &service{queue: q, stored: make(chan struct{}, 1)}}
					e.outcomes = append(e.outcomes, &settlement{ours: true, by: a})
				}
				over := make(chan struct{})
				go func() {
					defer close(over)
					fail(r, e, &nosy{func() { r.highest() }})
				}()
				select {
				case <-over:
				case <-time.After(time.Minute):
					t.Fatal("it hangs")
				}
				is.Equal(errors.Is((<-s.done).err, redisconn.ErrUnknown), name == "no reply")
				is.Equal(errors.Is((<-w.got).err, redisconn.ErrUnknown), ended || name == "no reply") // it was begun
			})
		}
	}
}
