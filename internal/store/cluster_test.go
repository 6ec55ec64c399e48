package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

// dumped returns all keys of a namespace, byte for byte, with their expiry times.
func dumped(t *testing.T, c redis.Conn, prefix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, k := range redistest.Keys(t, c, prefix) {
		all[k] = fmt.Sprint(redistest.Do(t, c, "DUMP", k), redistest.Do(t, c, "PEXPIRETIME", k))
	}
	return all
}

// complete writes those keys that a verb declares for each call and that don't exist.
func (e *env) complete(v *Verb) {
	e.t.Helper()
	for _, row := range v.keyed {
		if row == nil || row.Part != "" {
			continue
		}
		key := row.Of(e.q, "")
		if redistest.Do(e.t, e.conn, "EXISTS", key) == int64(1) {
			continue
		}
		command := map[keys.Type][]any{"list": {"LPUSH", key, "z"}, "zset": {"ZADD", key, 1, "z"}, "hash": {"HSET", key, "z", 1}, "string": {"SET", key, 1}, "stream": {"XADD", key, "1-1", "z", "z"}}[row.Type]
		redistest.Do(e.t, e.conn, command[0].(string), command[1:]...)
	}
}

// While the slot of a queue moves to another node, every verb is refused before it runs and changes
// nothing, even if the keys that it declares exist, because one of them never does. Without that one,
// some verbs would stop halfway, at a key that they don't declare.
func TestGuardSlotOnItsWay(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	slot := keys.Slot("{q}")
	from := c.Owner(t, slot)
	to := c.Nodes[(slices.Index(c.Nodes, from)+1)%2]
	type prepared struct {
		env    *env
		before map[string]string
	}
	prepare := func(space func(keys.Space) keys.Space) (all []prepared) {
		for _, p := range probes {
			e := newEnv(t, from.URL(), nil)
			e.line.Routed()
			e.q = space(keys.NewSpace(e.prefix)).Queue("q")
			e.seed(p.seed)
			if VerbOf(p.verb).ofQueue() {
				e.complete(VerbOf(p.verb))
			}
			all = append(all, prepared{e, dumped(t, e.conn, e.prefix)})
		}
		return all
	}
	guarded := prepare(keys.Space.InCluster)
	bare := prepare(func(s keys.Space) keys.Space { return s })
	c.BeginMove(t, slot, to)

	for i, p := range probes {
		if !VerbOf(p.verb).ofQueue() {
			continue
		}
		e := guarded[i].env
		if got := p.call(e); !strings.Contains(got, "TRYAGAIN") && !strings.Contains(got, "ASK ") {
			t.Errorf("%s answers %s", p.name(), got)
		}
		if after := dumped(t, e.conn, e.prefix); !maps.Equal(after, guarded[i].before) {
			t.Errorf("%s has changed something", p.name())
		}
	}
	half := 0
	for i, p := range probes {
		if !VerbOf(p.verb).ofQueue() {
			continue
		}
		e := bare[i].env
		got := p.call(e)
		if strings.Contains(got, "non local key") && !maps.Equal(dumped(t, e.conn, e.prefix), bare[i].before) {
			half++
		}
	}
	if half == 0 {
		t.Error("no verb would stop halfway: this test proves nothing")
	}
	t.Log(half, "of", len(probes), "calls would end half-way")
}
