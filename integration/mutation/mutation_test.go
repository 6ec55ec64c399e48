package main

import (
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/integration/mutation/mutant"
)

// A script with probes is otherwise unchanged, and the probes are where its
// mutants are: around an expression, and in front of a statement.
func TestProbed(t *testing.T) {
	is := is.New(t)
	const a, ab, statement = "KEYS.reach('x:2-3') and ", "KEYS.reach('x:2-9') and ", "KEYS.reach('x:0-0') "
	is.Equal(probed("x", "f(a and b)", []mutant.Place{{From: 2, To: 3}, {From: 2, To: 9}, {}}), prelude+statement+"f(("+ab+"("+a+"a) and b))")
}

func TestAsked(t *testing.T) {
	is := is.New(t)
	m := &mutant.Mutant{File: "step", Line: 123, Class: "bound"}
	for only, want := range map[string]bool{"": true, "step": true, "step:123": true, "step:123:bound": true, "step:12": false, "s": false, "step:123:true": false} {
		is.Equal((&report{only: []string{only}}).asked(m), want)
	}
}
