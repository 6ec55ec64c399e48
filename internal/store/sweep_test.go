package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

func sweeps(e *env) string {
	l, err := Sweep(e.ctx, e.line, e.q, time.Hour)
	if err != nil {
		return refused(err)
	}
	var w words
	w.look(l)
	return w.String()
}

// What others have written to the suspects hides nobody.
func TestForeignSuspects(t *testing.T) {
	t.Parallel()
	e := newEnv(t, redistest.URL(), nil)
	e.crowd(300, 0, 1)
	for i := range 200 {
		e.must(e.conn.Do("ZADD", e.q.Suspects(), 1<<50, fmt.Sprint("nobody", i)))
	}
	for range 40 {
		sure(Sweep(e.ctx, e.line, e.q, 0))(e.t)
	}
	if n := e.count("ZCARD", "workers"); n != 0 {
		t.Errorf("%d are left", n)
	}
}
