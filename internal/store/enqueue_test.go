package store

import (
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func payloads(p ...string) (all [][]byte) {
	for _, s := range p {
		all = append(all, []byte(s))
	}
	return all
}

func enqueues(p ...string) func(*env) string {
	return func(e *env) string {
		if e.back == nil {
			e.back = NewBack(e.q)
		}
		if _, err := e.back.Enqueue(e.ctx, e.line, redisconn.Copy(payloads(p...))); err != nil {
			return refused(err)
		}
		return "ok"
	}
}

// Who adds to a queue learns whether it was alone: nothing waited, and nobody serves it.
func TestAlone(t *testing.T) {
	t.Parallel()
	one := redisconn.Copy(payloads("a"))
	for verb, add := range map[string]func(*env) (bool, error){
		"enqueue":        func(e *env) (bool, error) { return NewBack(e.q).Enqueue(e.ctx, e.line, one) },
		"enqueue unique": func(e *env) (bool, error) { return EnqueueUnique(e.ctx, e.line, e.q, []byte("a")) },
		"enqueue once": func(e *env) (bool, error) {
			_, alone, err := EnqueueOnce(e.ctx, e.line, e.q, "n", time.Minute, one)
			return alone, err
		},
		"put": func(e *env) (bool, error) {
			return Put(e.ctx, e.line, e.q, "k:x", Change{Payload: []byte("a"), When: Always})
		},
	} {
		for name, c := range map[string]struct {
			seed  state
			alone bool
		}{
			"nothing is there":           {nil, true},
			"somebody serves it":         {member, false},
			"somebody wakes":             {state{"idle": "(w1=-1m)"}, verb == "put"}, // put looks at members alone
			"another waits":              {state{"queues": "[b]"}, false},
			"another waits for its time": {state{"schedule": "(k:y=+1m)", "contents": "(#b:k:y=0)", "keyed:k:y": waits("b", "+1m", 0, 0)}, verb != "put"}, // the others don't look there
		} {
			t.Run(verb+"/"+name, func(t *testing.T) {
				t.Parallel()
				e := newEnv(t, redistest.URL(), []string{"w1"})
				e.seed(c.seed)
				if alone, err := add(e); alone != c.alone || err != nil {
					t.Errorf("%v %v", alone, err)
				}
			})
		}
	}
	t.Run("to a long queue that was drained", func(t *testing.T) {
		is := redistest.Parallel(t)
		e := newEnv(t, redistest.URL(), nil)
		b := NewBack(e.q)
		for _, alone := range []bool{true, false} { // from now on without a script
			is.Equal(e.must(b.Enqueue(e.ctx, e.line, redisconn.Copy(payloads(seq("t", 0, 101)...)))), alone)
		}
		is.Equal(e.must(b.Enqueue(e.ctx, e.line, one)), false)
		e.must(e.conn.Do("DEL", e.q.Waiting()))
		is.Equal(e.must(b.Enqueue(e.ctx, e.line, one)), true)
	})
}
