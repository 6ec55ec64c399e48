package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/integration/spec"
)

// TestScopes visits every state of each scope, and expects no violation.
func TestScopes(t *testing.T) {
	for _, s := range searches() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := s.search("")
			t.Logf("%s: %v", s.bounds, f)
			if f.wrong != "" {
				t.Fail()
			}
		})
	}
}

// TestGuards removes one guard after the other. Each time the search must find a violation, unless the guard says why
// there is none.
func TestGuards(t *testing.T) {
	for _, r := range spec.Removals {
		t.Run(r.What, func(t *testing.T) {
			t.Parallel()
			f := searchOf(t, r.Scope).search(r.Guard)
			t.Log(f)
			if found := f.wrong != ""; found != (r.Spare == "") {
				t.Errorf("in the scope %q, a violation is found without the guard: %v", r.Scope, found)
			}
		})
	}
}

// TestLimits finds violations of what the protocol doesn't promise.
func TestLimits(t *testing.T) {
	for _, s := range beyond() {
		t.Run(s.name, func(t *testing.T) {
			f := s.search("")
			if t.Log(f); f.wrong == "" {
				t.Error("no violation is found anymore: promise it")
			}
		})
	}
}

// TestCodec stores the model of Redis in a keyspace, and expects to read the same back.
func TestCodec(t *testing.T) {
	for _, sc := range scopes {
		f := explore(codecs{newModel(sc, "")}, 1000)
		if f.wrong != "" && !strings.HasPrefix(f.wrong, "the scope is too large") {
			t.Errorf("%s: %v", sc.name, f)
		}
	}
}

type codecs struct{ *model }

func (c codecs) wrong(s state) string {
	if got := c.codec.read(c.codec.store(&s.redis), &s.redis, &query{}); got != s.redis {
		return fmt.Sprintf("got %+v\nfrom %+v", got, s.redis)
	}
	return ""
}

func searchOf(t *testing.T, name string) search {
	t.Helper()
	all := searches()
	i := slices.IndexFunc(all, func(s search) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no scope %q", name)
	}
	return all[i]
}
