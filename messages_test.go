package worqr

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/script"
)

// FuzzMessages: anybody may publish anything. A message is read or passed over; a
// cancel that is not on record stops nothing by itself; and nothing falls.
func FuzzMessages(f *testing.F) {
	f.Add("worqr_{q}_done", []byte(`{"workerId":"w","task":"a","result":"r"}`))
	f.Add("worqr_{q}_done", []byte("{\"workerId\":\"w\",\"task\":\"\xff\\u0000\"}"))
	f.Add("worqr_{q}_work", []byte("-99999999999999999999"))
	f.Add("worqr_{q}_cancel", []byte("a"))
	f.Add("worqr_{q}_delete", []byte{})
	f.Add("worqr_{}_", []byte("3"))
	nowhere := func(context.Context) (redis.Conn, error) { return nil, errors.New("nowhere") }
	f.Fuzz(func(t *testing.T, channel string, data []byte) {
		p := newPeer(nowhere, &Options{Logger: slog.New(slog.DiscardHandler)})
		if e, ok := p.event(channel, data); ok && (e.Kind == "" || !strings.Contains(channel, "{"+e.Queue+"}")) {
			t.Errorf("%q is read as %q of %q", channel, e.Kind, e.Queue)
		}
		r := newRounds(t.Context(), p.Queue("q"), "w", nil, stay{round: 1})
		r.silent = true
		task := newTask(r, "process", script.Start{Payload: []byte("a"), Token: 1})
		r.held[task.ID] = task
		for _, kind := range []keys.Kind{"wake", keys.KindWork, keys.KindCancel} {
			r.hear(kind, data)
		}
		if task.ctx.Err() != nil {
			t.Errorf("%q has stopped a task, and no cancel is on record", data)
		}
		if asked := r.cancels.ask(maxHeard); len(asked) != 1 || asked[0] != digest(data) {
			t.Errorf("of %q heard, %q is asked for", data, asked)
		}
	})
}
