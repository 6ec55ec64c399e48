package search

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/integration/spec"
)

var update = flag.Bool("update", false, "rewrite the tables of README.md")

const readme = "README.md"

// TestScopes visits every state of each scope, and expects no violation.
func TestScopes(t *testing.T) {
	all := searches()
	rows := make([]string, len(all))
	t.Cleanup(func() { compare(t, "scopes", rows) })
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := s.search("")
			t.Log(f)
			if f.wrong != "" {
				t.Fail()
			}
			rows[i] = fmt.Sprintf("| %s | %s | %d | %d | %d |", s.name, s.bounds, f.states, f.moves, f.depth)
		})
	}
}

// TestGuards removes one guard after the other. Each time the search must find the violation in the table.
func TestGuards(t *testing.T) {
	rows := make([]string, len(spec.Removals))
	t.Cleanup(func() { compare(t, "guards", rows) })
	for i, r := range spec.Removals {
		t.Run(r.What, func(t *testing.T) {
			t.Parallel()
			f := searchOf(t, r.Scope).search(r.Guard)
			t.Log(f)
			var found, trace string
			switch {
			case r.Spare == "" && f.wrong == "":
				t.Fatalf("in the scope %q no violation is found without the guard", r.Scope)
			case r.Spare != "" && f.wrong != "":
				t.Fatal("without the guard a violation is found, but the table has none")
			case r.Spare != "":
				found, trace = "nothing: "+r.Spare, fmt.Sprintf("all %d states", f.states)
			default:
				found, trace = f.wrong, f.way()
			}
			rows[i] = fmt.Sprintf("| `%s`: %s | %s | %s | %s |", r.Where, r.What, found, r.Scope, trace)
		})
	}
}

// TestLimits finds violations of what the protocol does not promise, so that the table stays true.
func TestLimits(t *testing.T) {
	var rows []string
	for _, s := range beyond() {
		t.Run(s.name, func(t *testing.T) {
			f := s.search("")
			t.Log(f)
			if f.wrong == "" {
				t.Fatal("no violation is found anymore: promise it")
			}
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", s.name, f.wrong, s.bounds, f.way()))
		})
	}
	compare(t, "limits", rows)
}

// way returns the moves on one line.
func (f finding) way() string {
	var steps []string
	for _, s := range f.trace[1:] {
		steps = append(steps, s.what)
	}
	return strings.Join(steps, " → ")
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

// compare checks the rows of a table in the README against the results, unless
// only some of the tests ran.
func compare(t *testing.T, table string, rows []string) {
	t.Helper()
	if run := flag.Lookup("test.run").Value.String(); strings.Contains(run, "/") || t.Failed() {
		return
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+table+" -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no table of %s", readme, table)
	}
	head := strings.SplitAfterN(rest, "\n", 3) // the heading has two lines
	_, after, _ := strings.Cut(rest, end)
	want := before + begin + head[0] + head[1] + strings.Join(rows, "\n") + "\n" + end + after
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(readme, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of %s in %s differs from the results; to rewrite it: go test ./integration/search -update", table, readme)
	}
}
