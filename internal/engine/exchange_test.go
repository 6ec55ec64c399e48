package engine

import (
	"bytes"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

// A round is sent once the digests of what goes back unbegun are known.
func TestRoundWaitsForDigests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := lonely(t).newSession(Membership{Worker: "w", Round: 1})
	large := bytes.Repeat([]byte("x"), 100_000)
	task := newAttempt(r, "process", store.Start{Payload: large, Token: 1})
	is.True(!task.isKnown())
	s := task.unbegun(store.Stop)
	is.Equal(s.Digest, "")
	e := &exchange{outcomes: []*ending{s}}
	e.Outcomes = []*store.Outcome{&s.Outcome}
	go r.identify(task)
	e.complete()
	is.Equal(e.Outcomes[0].Digest, hashOf(large).String())
}
