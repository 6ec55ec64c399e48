package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A survivor is a mutant that the tests of internal/store do not notice.
type survivor struct {
	file string
	text string // of the mutant
	why  string // it makes no difference
}

// A report is what became of all mutants.
type report struct {
	only              []string
	verbose, thorough bool

	mu                       sync.Mutex // protects the fields below
	killed, explained, wrong int
}

func (r *report) asked(m *mutant) bool {
	for _, o := range r.only {
		if o == "" || strings.HasPrefix(m.name()+":", o+":") {
			return true
		}
	}
	return false
}

func known(m *mutant) *survivor {
	for i := range survivors {
		if s := &survivors[i]; s.file == m.file && s.text == m.text {
			return s
		}
	}
	return nil
}

// judge tries a mutant and compares with what is known of it.
func (r *report) judge(ctx context.Context, s *stand, m *mutant) {
	k, most := known(m), time.Hour
	if k != nil && !r.thorough {
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
	case f.killed && k != nil:
		r.wrong++
		fmt.Printf("survives no more, since there is %s: %s\n", f.by, m)
	case f.killed:
		r.killed++
		if r.verbose {
			fmt.Printf("killed by %s, after %s of tests: %s\n", f.by, f.after.Round(time.Millisecond), m)
		}
	case k != nil:
		r.explained++
	default:
		r.wrong++
		why := "no test notices it"
		if !f.reached {
			why = "no test gets there"
		}
		fmt.Printf("%s: %s\n  go run ./integration/mutation -only %s\n", why, m, m.name())
	}
}

// stale finds what is said of mutants that there are not.
func (r *report) stale(all []mutant) {
	there := map[string]bool{}
	for _, m := range all {
		there[m.file+m.text] = true
	}
	for _, k := range survivors {
		if !there[k.file+k.text] {
			r.wrong++
			fmt.Printf("there is no such mutant: %s: %s\n", k.file, k.text)
		}
	}
}
