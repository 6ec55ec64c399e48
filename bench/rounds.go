package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/worqr/worqr/internal/redistest"
)

// measure runs all rounds of a scenario, each with every system in turn.
func (r *request) measure(ctx context.Context, p scenario, found results) error {
	rounds := 0
	for _, s := range p.steps {
		rounds = max(rounds, r.roundsOf(s))
	}
	var failed []error
	for round := range rounds {
		failed = append(failed, r.round(ctx, p, round, found))
	}
	return errors.Join(failed...)
}

// roundsOf returns how many times a step is repeated.
func (r *request) roundsOf(s step) int {
	if s.rounds > 0 {
		return s.rounds
	}
	return r.rounds
}

func (r *request) round(ctx context.Context, p scenario, round int, found results) error {
	taken := make([]sample, len(p.steps))
	errs := make([]error, len(p.steps))
	var steps errgroup.Group
	steps.SetLimit(1)
	if r.together {
		steps.SetLimit(len(p.steps))
	}
	for i, s := range p.steps {
		if round >= r.roundsOf(s) {
			continue
		}
		steps.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			err := redistest.Outside(func(t testing.TB) { taken[i] = s.run(ctx, t, s.job) })
			if err != nil {
				taken[i], errs[i] = nil, fmt.Errorf("%s, round %d: %w", s.cell, round+1, err)
				return nil
			}
			fmt.Fprintf(r.log, "%s, round %d: %s\n", s.cell, round+1, taken[i])
			return nil
		})
	}
	_ = steps.Wait() // errs contains them all
	for i, s := range p.steps {
		if round < r.roundsOf(s) {
			found[s.cell] = append(found[s.cell], taken[i])
		}
	}
	return errors.Join(errs...)
}

// String returns the values in alphabetical order.
func (s sample) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		all = append(all, name+" "+figure(s[name]))
	}
	return strings.Join(all, ", ")
}

func (c cell) String() string {
	return strings.Join(slices.DeleteFunc([]string{c.scenario, c.variant, c.system}, func(s string) bool { return s == "" }), " ")
}
