package worqr

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

// A round is sent once the digests of what goes back unbegun are known.
func TestRoundWaitsForDigests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nowhere := func(context.Context) (redis.Conn, error) { return nil, errors.New("nowhere") }
	p := newPeer(nowhere, &Options{Logger: slog.New(slog.DiscardHandler)})
	r := newRounds(t.Context(), p.Queue("q"), "w", nil, stay{round: 1})
	large := bytes.Repeat([]byte("x"), 100_000)
	task := newTask(r, "process", store.Start{Payload: large, Token: 1})
	is.True(!task.isKnown())
	s := task.unbegun(store.Stop)
	is.Equal(s.Digest, "")
	e := &exchange{outcomes: []*settlement{s}}
	e.Outcomes = []store.Outcome{s.Outcome}
	go r.identify(task)
	e.complete()
	is.Equal(e.Outcomes[0].Digest, hashOf(large).String())
}
