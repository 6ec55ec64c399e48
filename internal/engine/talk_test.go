package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A worker that can't report all running tasks reports nothing about the rest: neither for the
// latest cancel, nor for an earlier one of the same payload that a caller waits for.
func TestStoppingInParts(t *testing.T) {
	held := map[string]*Attempt{}
	for i, id := range []string{"p1", "p2"} {
		held[id] = &Attempt{Token: int64(1 + i), covered: []store.Cancellation{{Name: "a", Token: 4}}}
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

// A worker that leaves may have started a task without knowing it, in a round whose answers were
// both lost. It then sends no more rounds: they would acknowledge the cancel of that task, which
// goes back with the leave.
func TestCancelOfWhatNobodyKnows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	r := joined(t, redistest.Worker(t, link.URL(), "p"))
	dial, err := redisconn.FromURL(server.URL())
	is.NoErr(err)
	other := queueAt(t, dial).view
	enqueue(t, other, "a")
	_, err = r.Start(t.Context(), 1)
	is.NoErr(err)
	r.Unlisten() // so no message starts a talk
	hushed(r)
	enqueue(t, other, "b")
	lost := link.LoseRepliesTo("p:working:{q}:", 2)
	w := &want{n: 1, got: make(chan taken, 1)}
	r.mu.Lock()
	r.wants = append(r.wants, w)
	r.wakeLocked()
	r.closing = true // as in a leave
	r.mu.Unlock()
	hushed(r)
	<-lost
	is.True(errors.Is((<-w.got).err, store.ErrUnknown))

	report, err := store.Cancel(t.Context(), other.Calls, other.Keys, []byte("b"))
	is.NoErr(err)
	r.Wake() // before the leave continues
	hushed(r)
	is.NoErr(r.Leave(t.Context()))
	over, tally, err := report.IsOver(t.Context(), other.Calls, other.Keys)
	is.NoErr(err)
	is.True(over)
	is.Equal(tally.Stopped, 1)
	waiting, err := redis.Strings(other.Calls.One(t.Context(), redisconn.Command("LRANGE", other.Keys.Waiting(), 0, -1)))
	is.NoErr(err)
	is.Equal(waiting, []string{"a"})
}

// A nosy is an error whose methods use the peer.
type nosy struct{ ask func() }

func (n *nosy) Error() string { n.ask(); return "nosy" }

func (n *nosy) Is(error) bool { n.ask(); return false }

// The cause of a context is user code. Its methods may use the peer and the task, so none is called
// under a lock, whether or not the end was sent.
func TestCauseUsesPeer(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]bool{"said": true, "not said": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			server := redistest.Start(t)
			link := redistest.NewLink(t, server.Addr())
			r := joined(t, redistest.Worker(t, link.URL(), "p"))
			enqueue(t, r.view, "a")
			tasks, err := r.Start(t.Context(), 1)
			is.NoErr(err)
			task := tasks[0]
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
			finish := store.Outcome{Verb: store.Finish}
			asked := false
			gone := make(chan error)
			go func() { gone <- task.End(ctx, finish) }()
			for left := said; left; { // until it's sent
				r.mu.Lock()
				left = len(r.outbox) > 0 || r.idle == nil
				r.mu.Unlock()
			}
			cancel(&nosy{func() {
				if !asked {
					asked = true
					_ = task.End(over, finish)
				}
			}})
			select {
			case err = <-gone:
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
			is.Equal(errors.Is(err, store.ErrUnknown), said)
			is.True(strings.Contains(err.Error(), "nosy"))
			is.True(asked)
			r.mu.Lock()
			r.silent = false
			r.mu.Unlock()
		})
	}
}

// If the answer to a request for tasks comes too late, and the worker turns out to be evicted, the
// caller's error says that tasks may have been started.
func TestLateStartIsUnknown(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(r *Session, e *exchange){
		"by a beat":  func(r *Session, _ *exchange) { r.End(ErrEvicted) },
		"by a round": func(r *Session, e *exchange) { r.release(e, ErrEvicted) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			for _, late := range []bool{true, false} {
				r := lonely(t).newSession(Membership{Worker: "w"})
				w := &want{n: 1, got: make(chan taken, 1)}
				e := &exchange{wants: []*want{w}}
				r.mu.Lock()
				r.distributeLocked(e, nil, &store.Answer{Again: true}, late)
				r.mu.Unlock()
				lose(r, e)
				r.End(ErrEvicted)
				got := (<-w.got).err
				is.True(errors.Is(got, ErrEvicted))
				is.Equal(errors.Is(got, store.ErrUnknown), late)
			}
		})
	}
}

// The error of a Pool is user code, too: none of its methods is called under a lock.
func TestPoolErrorUsesPeer(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(r *Session, e *exchange, err error){
		"not sent": func(r *Session, e *exchange, err error) { r.restore(e, err) },
		"no reply": func(r *Session, e *exchange, err error) {
			r.release(e, fmt.Errorf("%w: %w", store.ErrUnknown, err))
		},
	} {
		for _, ended := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", ended ", ended), func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				q := lonely(t)
				r := q.newSession(Membership{Worker: "w"})
				if ended {
					r.End(ErrEvicted)
				}
				w := &want{n: 1, begun: true, got: make(chan taken, 1)}
				s := &ending{done: make(chan settled, 1)}
				e := &exchange{wants: []*want{w}, outcomes: []*ending{s}}
				if ended {
					a := &run{task: &Attempt{session: r}, queue: q.Queue}
					e.outcomes = append(e.outcomes, &ending{ours: true, by: a})
				}
				over := make(chan struct{})
				go func() {
					defer close(over)
					fail(r, e, &nosy{func() { r.Last() }})
				}()
				select {
				case <-over:
				case <-time.After(time.Minute):
					t.Fatal("it hangs")
				}
				is.Equal(errors.Is((<-s.done).err, store.ErrUnknown), name == "no reply")
				is.Equal(errors.Is((<-w.got).err, store.ErrUnknown), ended || name == "no reply") // they were started
			})
		}
	}
}
