package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/integration/mutation/mutant"
)

// A report has the results of all mutants.
type report struct {
	only              []string
	verbose, thorough bool

	mu                       sync.Mutex // protects the fields below
	killed, explained, wrong int
}

func (r *report) asked(m *mutant.Mutant) bool {
	return slices.ContainsFunc(r.only, func(o string) bool { return o == "" || strings.HasPrefix(m.Name()+":", o+":") })
}

// judge tries a mutant and compares the result with what is known about it.
func (r *report) judge(ctx context.Context, s *stand, m *mutant.Mutant) {
	known, most := m.Why != "", time.Hour
	if known && !r.thorough {
		most = 100 * time.Millisecond
	}
	f, err := s.try(ctx, m, most)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.wrong++
		fmt.Printf("cannot be tried: %s\n  %v\n", m, err)
	case f.killed && known:
		r.wrong++
		fmt.Printf("no longer survives because of %s: %s\n", f.by, m)
	case f.killed:
		r.killed++
		if r.verbose {
			fmt.Printf("killed by %s, after %s of tests: %s\n", f.by, f.after.Round(time.Millisecond), m)
		}
	case known:
		r.explained++
	default:
		r.wrong++
		why := "no test finds it"
		if !f.reached {
			why = "no test reaches it"
		}
		fmt.Printf("%s: %s\n  go run ./integration/mutation -only %s\n", why, m, m.Name())
	}
}
