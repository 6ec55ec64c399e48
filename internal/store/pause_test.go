package store

import ()

func pauses(e *env) string {
	if err := Pause(e.ctx, e.line, e.q); err != nil {
		return refused(err)
	}
	return "ok"
}
