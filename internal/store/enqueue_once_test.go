package store

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

var _ = probed("enqueue_once",
	probe{seed: busy, call: enqueuesOnce("m", "new"), adds: true},
)

func enqueuesOnce(nonce string, p ...string) func(*env) string {
	return func(e *env) string {
		fresh, _, err := EnqueueOnce(e.ctx, e.line, e.q, nonce, time.Hour, redisconn.Payloads(context.Background(), payloads(p...)))
		switch {
		case err != nil:
			return refused(err)
		case fresh:
			return "fresh"
		}
		return "repeated"
	}
}

func TestEnqueueOnce(t *testing.T) {
	run(t, []scenario{
		{name: "once", steps: []when{
			{call: enqueuesOnce("n", "a", "b"), want: "fresh", state: state{"queues": "[a b]", "once:n": "=1 +60m"}, heard: []string{"enqueue 2"}},
			{call: enqueuesOnce("n", "a", "b"), want: "repeated"},
			{call: enqueuesOnce("m", "a"), want: "fresh", state: state{"queues": "[a b a]", "once:n": "=1 +60m", "once:m": "=1 +60m"}, heard: []string{"enqueue 1"}}}},
	})
}
