package store

import (
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

func enqueuesOnce(nonce string, p ...string) func(*env) string {
	return func(e *env) string {
		fresh, _, err := EnqueueOnce(e.ctx, e.line, e.q, nonce, time.Hour, redisconn.Copy(payloads(p...)))
		switch {
		case err != nil:
			return refused(err)
		case fresh:
			return "fresh"
		}
		return "repeated"
	}
}
