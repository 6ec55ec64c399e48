package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/integration/mutation/mutant"
)

// sample has what is changed in scripts.
const sample = `local n = 5
-- a comment, and not (one)
local function f(a, b)
  if not a and b < 3 or a then -- why
    redis.pcall('DEL', "x")
    return math.max(n, b)
  end
  n = n + #KEYS[1]
end
`

// With its probes a script is the same but for them, and they are where its
// mutants are.
func TestProbed(t *testing.T) {
	is := is.New(t)
	all, err := mutant.Breed("sample", sample)
	is.NoErr(err)
	var places []mutant.Place
	for _, m := range all {
		places = append(places, m.Place)
	}
	probes := probed("sample", sample, places)
	_, err = mutant.Breed("sample", probes)
	is.NoErr(err)
	is.True(strings.HasPrefix(probes, prelude))
	for _, p := range places {
		is.Equal(strings.Count(probes, "KEYS.reach('"+in(p, "sample")+"')"), 1)
	}
	is.True(strings.Contains(probes, ") redis.pcall('DEL', \"x\")"))
}

// Each mark excuses a mutant, for a reason that there is; and each reason excuses some.
func TestMarks(t *testing.T) {
	is := is.New(t)
	s := &stand{root: "../.."}
	is.NoErr(s.load())
	all, wrong, err := s.breed()
	is.NoErr(err)
	is.Equal(wrong, nil)
	idle := maps.Clone(mutant.Reasons)
	for _, m := range all {
		maps.DeleteFunc(idle, func(_, why string) bool { return why == m.Why })
	}
	is.Equal(len(idle), 0)
}

func TestAsked(t *testing.T) {
	is := is.New(t)
	m := &mutant.Mutant{File: "step", Line: 123, Class: "bound"}
	for only, want := range map[string]bool{"": true, "step": true, "step:123": true, "step:123:bound": true, "step:12": false, "s": false, "step:123:true": false} {
		is.Equal((&report{only: []string{only}}).asked(m), want)
	}
}
