package worqr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/logs"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"
)

// FuzzMessages: anybody may publish anything. A message is read or passed over, and nothing
// falls.
func FuzzMessages(f *testing.F) {
	f.Add("worqr_{q}_done", []byte(`{"workerId":"w","task":"a","result":"r"}`))
	f.Add("worqr_{q}_done", []byte("{\"workerId\":\"w\",\"task\":\"\xff\\u0000\"}"))
	f.Add("worqr_{q}_work", []byte("-99999999999999999999"))
	f.Add("worqr_{q}_cancel", []byte("a"))
	f.Add("worqr_{q}_cancel", []byte("sha1:86f7e437faa5a7fce15d1ddcb9eaeaea377667b8:1"))
	f.Add("worqr_{q}_delete", []byte{})
	f.Add("worqr_{}_", []byte("3"))
	nowhere := func(context.Context) (redis.Conn, error) { return nil, errors.New("nowhere") }
	f.Fuzz(func(t *testing.T, channel string, data []byte) {
		p := newPeer(nowhere, &Options{Logger: slog.New(slog.DiscardHandler)})
		if e, ok := p.event(channel, data); ok && (e.Kind == "" || !strings.Contains(channel, "{"+e.Queue+"}")) {
			t.Errorf("%q is read as %q of %q", channel, e.Kind, e.Queue)
		}
	})
}

// What is read where a number belongs may be a payload: no error and no line shows it.
func TestErrorsOfNumbers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := strconv.Atoi("canary")
	is.True(!strings.Contains(wrap("count", fmt.Errorf("of two: %w", err)).Error(), "canary"))
	var lines strings.Builder
	l := logs.New(slog.New(slog.NewTextHandler(&lines, nil)))
	l.Warn("worqr: cannot start or finish tasks", "err", err)
	l.Flush()
	is.True(strings.Contains(lines.String(), "where a number belongs"))
	is.True(!strings.Contains(lines.String(), "canary"))
}
