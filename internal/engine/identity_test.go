package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

var large = bytes.Repeat([]byte("x"), 100_000)

// A round waits for the digests of tasks that go back without having begun.
func TestRoundWaitsForDigests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := lonely(t).newSession(Membership{Worker: "w", Round: 1})
	task := newAttempt(r, "process", store.Start{Payload: large, Token: 1})
	is.True(!task.isKnown())
	s := task.unbegun(store.Stop)
	is.Equal(s.Digest, "")
	e := &exchange{outcomes: []*ending{s}}
	e.Outcomes = []*store.Outcome{&s.Outcome}
	go r.identify(task)
	r.send(e)
	is.Equal(e.Outcomes[0].Digest, hashOf(large).String())
}

// A message about a cancel that isn't on record stops the tasks held when it came, even if their
// digest wasn't known then.
func TestMessageBeforeDigest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := byHand(t)
	small, late := r.holds("small", 1, ""), newAttempt(r, "late", store.Start{Payload: large, Token: 2})
	r.held["late"] = late
	r.mu.Unlock()
	for _, payload := range [][]byte{small.Payload, large} {
		r.notify(store.IsCanceled, payload)
	}
	r.mu.Lock()
	is.Equal(r.cancels.ask(maxHeard), []string{small.digest.String()})
	r.mu.Unlock()
	r.identify(late)
	r.mu.Lock()
	asked := r.cancels.ask(maxHeard)
	slices.Sort(asked)
	is.Equal(asked, slices.Sorted(slices.Values([]string{small.digest.String(), hashOf(large).String()})))
	newer := r.holds("newer", 3, "")
	newer.digest = small.digest
	r.cancels.learnLocked(asked, []int64{0, 0}, r.held) // no such cancel is on record
	is.Equal(context.Cause(small.ctx), ErrCanceled)
	is.Equal(context.Cause(late.ctx), ErrCanceled)
	is.NoErr(newer.ctx.Err())
}

// Once the digest is known, the cancels that came in the meantime have been applied. Otherwise the
// handler of a canceled task could begin.
func TestKnownWithCancels(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := byHand(t)
	late := newAttempt(r, "late", store.Start{Payload: large, Token: 1})
	r.held["late"] = late
	r.postponeLocked([]store.Cancellation{{Name: hashOf(large).String(), Token: 2}})
	go r.identify(late)
	select {
	case <-late.late.known:
		t.Error("the digest is known, and the cancel can't have been applied, since that needs the lock")
	case <-time.After(50 * time.Millisecond):
	}
	r.mu.Unlock()
	late.wait()
	r.mu.Lock()
	is.True(errors.Is(context.Cause(late.ctx), ErrCanceled))
}
