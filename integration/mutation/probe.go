package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/integration/mutation/mutant"
)

// A script with probes publishes which places it has reached, each once per call, on a channel named like the
// prefix of its keys. It stores what it needs for that in the table of keys: a script may have 200 local
// variables, and step has nearly as many.
const prelude = "KEYS.reached = {} " +
	"function KEYS.reach(place) " +
	"if not KEYS.reached[place] then KEYS.reached[place] = true " +
	"redis.call('PUBLISH', 'reached:' .. string.match(KEYS[1], '^[^:]+'), place) end " +
	"return true end "

func in(p mutant.Place, file string) string { return fmt.Sprintf("%s:%d-%d", file, p.From, p.To) }

// probed returns the source of a file with a probe at each place. If two begin
// together, the outer one opens first.
func probed(file, src string, places []mutant.Place) string {
	places = slices.Clone(places)
	slices.SortFunc(places, func(a, b mutant.Place) int { return cmp.Or(a.From-b.From, width(b)-width(a)) })
	open, closed := map[int]string{}, map[int]string{}
	for _, p := range slices.Compact(places) {
		if width(p) == statement {
			open[p.From] += fmt.Sprintf("KEYS.reach('%s') ", in(p, file))
			continue
		}
		open[p.From] += fmt.Sprintf("(KEYS.reach('%s') and ", in(p, file))
		closed[p.To] += ")"
	}
	var all strings.Builder
	all.WriteString(prelude)
	for i := range len(src) + 1 {
		all.WriteString(closed[i] + open[i])
		if i < len(src) {
			all.WriteByte(src[i])
		}
	}
	return all.String()
}

// statement is the width of a place that is a statement: larger than any
// expression that begins with it.
const statement = 1 << 30

func width(p mutant.Place) int {
	if p.From == p.To {
		return statement
	}
	return p.To - p.From
}

// A test of the tables.
type test struct {
	name  string
	cost  time.Duration
	kills int
	last  map[mutant.Class]int // the number of its last kill, of any class and of each
}

// kind returns the function that the test is in.
func (t *test) kind() string {
	kind, _, _ := strings.Cut(t.name, "/")
	return kind
}

// way returns 0 for a scenario, and more for a variant of it.
func (t *test) way() int {
	if strings.HasSuffix(t.name, ",_in_brief") || strings.HasSuffix(t.name, ",_unheard") {
		return 1
	}
	return 0
}

// pattern returns the argument for go test that runs the test as one of many: matching many names takes longer
// than starting all of one function, since those that don't match end at once.
func (t *test) pattern(of int) string {
	if of > 50 {
		return "^" + t.kind() + "$"
	}
	levels := strings.Split(t.name, "/")
	for i, l := range levels {
		levels[i] = "^" + regexp.QuoteMeta(l) + "$"
	}
	return strings.Join(levels, "/")
}

// read returns the tests that reach each place, from their reports in a
// directory.
func read(dir string) (map[string][]*test, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	by := map[string][]*test{}
	for _, path := range paths {
		said, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(said), "\n")
		t := &test{name: lines[0], last: map[mutant.Class]int{}}
		if t.cost, err = time.ParseDuration(lines[1]); err != nil {
			return nil, err
		}
		for _, p := range lines[2:] {
			by[p] = append(by[p], t)
		}
	}
	return by, nil
}
