package store

import ()

func stages(before int, payloads ...any) func(*env) string {
	return func(e *env) string {
		v, err := e.line.One(e.ctx, stage.call(e.q, "batch", "b", "before", before, "ttl", 60_000, "payload", payloads))
		return answered(v, err)
	}
}
