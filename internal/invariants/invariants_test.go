package invariants

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/protocol.md has the same invariants, in the same order.
func TestProtocolHasThem(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\n## Invariants\n")
	for i, v := range All {
		if head := fmt.Sprintf("\n%d. **%s.**", i+1, strings.ToUpper(v.ID[:1])+v.ID[1:]); !strings.Contains(list, head) {
			t.Errorf("there is no %q", head)
		}
	}
}

// Each flaw has a meaning, and each that repair.lua mends is one.
func TestFlaws(t *testing.T) {
	script, err := os.ReadFile("../store/repair.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`function mends\.(\w+)`).FindAllStringSubmatch(string(script), -1) {
		if _, known := Flaws[Flaw(m[1])]; !known {
			t.Errorf("repair.lua mends %q, which is no flaw", m[1])
		}
	}
	for flaw, about := range Flaws {
		if about.Says == "" || about.Kind == "" || about.Breaks.ID == "" {
			t.Errorf("%s has no meaning", flaw)
		}
	}
}

// A state with one flaw of each kind of thing has exactly these.
func TestJudge(t *testing.T) {
	s := State{
		Queue:     Queue{Now: 100, Token: 5, Lease: 10, Alive: 1},
		Names:     []Name{{Name: "k:a", HasRecord: true, Ready: true}, {Name: "k:b", HasRecord: true}},
		Attempts:  []Attempt{{ID: "w.1.1.1", Worker: "w", HasList: true, Held: true}, {ID: "w.1.1.2", Worker: "w", HasList: true}},
		Workers:   []Worker{{ID: "w", Deadline: "105", HasRound: true, Highest: 5}, {ID: "v", Highest: 1}},
		Schedules: []Schedule{{Name: "k:a", Until: "110", Times: []string{"120"}, Passed: "90", Prints: "x"}, {Name: "k:b", Until: "110"}},
	}
	var found []string
	for _, f := range append(s.Judge(), s.Queue.Judge()...) {
		found = append(found, string(f.Flaw)+" "+f.Name)
	}
	if got := strings.Join(found, ", "); got != "nowhere k:b, unowned w.1.1.2, stray v, half-schedule k:b" {
		t.Error(got)
	}
}
