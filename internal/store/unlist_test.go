package store

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
)

var _ = probed("unlist",
	probe{call: func(e *env) string {
		s := keys.NewSpace(e.prefix)
		e.must(nil, List(e.ctx, e.line, s, "other", "q"))
		e.must(nil, Unlist(e.ctx, e.line, s, e.q, "q"))
		return "ok"
	}},
)

// A queue without keys is removed from the list of queues, and one with a key stays.
func TestUnlist(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seed   state
		listed bool
	}{
		"nothing is there":                 {nil, false},
		"what may be left":                 {state{"token": "=9", "once:n": "=1 +1m", "ledger": "{#a=1}"}, false},
		"a task waits":                     {state{"queues": "[a]"}, true},
		"an added task waits":              {state{"added": "|1-0-a/0=x|"}, true},
		"a task waits for its time":        {state{"contents": "(#a:k:x=0)"}, true},
		"something runs":                   {state{"entries": "{p1=k:x}"}, true},
		"a worker serves it":               {member, true},
		"what somebody held goes back":     {state{"suspects": "(w1=0)"}, true},
		"something recurs":                 {state{"recurring": "(k:x=+1m)"}, true},
		"it is paused":                     {state{"paused": "=1"}, true},
		"a task has failed":                {state{"failed:contents": "(#a:k:p1=0)"}, true},
		"a worker serves the failed queue": {state{"failed:workers": "(w1=+1m)"}, true},
	} {
		for where, in := range places {
			t.Run(name+where, func(t *testing.T) {
				e := beside(t, nil)
				s := in(keys.NewSpace(e.prefix))
				listed := func(name string) bool { return sure(redis.Bool(e.conn.Do("SISMEMBER", s.Registry(), name)))(t) }
				for range 2 {
					e.is.NoErr(List(e.ctx, e.line, s, "q", "other"))
					e.seed(c.seed)
					e.is.NoErr(Unlist(e.ctx, e.line, s, e.q, "q"))
					e.is.Equal(listed("q"), c.listed)
					e.is.NoErr(Unlist(e.ctx, e.line, s, e.q, "q"))
					e.is.Equal(listed("q"), c.listed)
					e.is.True(listed("other"))
				}
			})
		}
	}
}

// places are where keys may be: on one server, or on several nodes, although tests have only one.
var places = map[string]func(keys.Space) keys.Space{"": func(s keys.Space) keys.Space { return s }, ", scattered": keys.Space.InCluster}

// If the registry isn't on the queue's node, a queue that comes into use between two checks is on the
// list in the end.
func TestUnlistApart(t *testing.T) {
	e := beside(t, nil)
	s := keys.NewSpace(e.prefix).InCluster()
	e.is.NoErr(List(e.ctx, e.line, s, "q"))
	e.is.NoErr(Unlist(e.ctx, &hooked{Runner: e.line, before: func(call int) {
		if call == 2 {
			e.seed(state{"queues": "[a]"})
		}
	}}, s, e.q, "q"))
	e.is.True(sure(redis.Bool(e.conn.Do("SISMEMBER", s.Registry(), "q")))(t))
}

// The reply says whether the name was removed. A list of another type is refused.
func TestUnlistAnswers(t *testing.T) {
	e := beside(t, nil)
	s := keys.NewSpace(e.prefix)
	takes := func() any {
		return sure(e.line.One(e.ctx, unlist.call(e.q, "used", []string{e.q.Waiting(), e.q.Workers()}, "name", "q")))(t)
	}
	e.is.Equal(takes(), int64(0))
	e.is.NoErr(List(e.ctx, e.line, s, "q"))
	e.is.Equal(takes(), int64(1))
	e.is.NoErr(List(e.ctx, e.line, s, "q"))
	e.must(e.conn.Do("ZADD", e.q.Workers(), 1, "w1"))
	e.is.Equal(takes(), int64(0))
	e.must(e.conn.Do("DEL", e.q.Workers()))
	e.must(e.conn.Do("SET", s.Registry(), "foreign"))
	if err := Unlist(e.ctx, e.line, s, e.q, "q"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Error(err)
	}
}
