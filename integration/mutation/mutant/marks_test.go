package mutant

import (
	"maps"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// Each mark matches a mutant, and has a reason that exists; each reason is used.
func TestMarks(t *testing.T) {
	is := is.New(t)
	s, err := Read("../../..")
	is.NoErr(err)
	is.Equal(s.Wrong, nil)
	idle := maps.Clone(Reasons)
	for _, m := range s.Mutants {
		maps.DeleteFunc(idle, func(_, why string) bool { return why == m.Why })
	}
	is.Equal(len(idle), 0)
}

func TestWrongMarks(t *testing.T) {
	is := is.New(t)
	s := &Scripts{Guards: map[string]*Mutant{}, Files: map[string]string{}}
	is.NoErr(s.add("sample", "if a > 0 and b > 0 then --! look bound.2 false; guard both true; guard none\n"+
		"end --! page true; what bound; guard both; guard many\n"+
		"if a > 0 and b > 0 then --! what false; guard two operand; one true.2; look true; page true\n"))
	is.Equal(s.Wrong, []string{
		"sample:2: page true: there is no such mutant", "sample:2: what bound: there is no such mutant", "sample:2: both: there is another guard of this name",
		"sample:3: what false: there is no such reason", "sample:3: two operand: there are several such mutants", "sample:3: one true.2: there is no such mutant",
		"sample:3: page true: it has a reason",
	})
	var got []string
	for _, m := range s.Mutants {
		if m.Line == 1 && m.Why == Reasons["look"] {
			got = append(got, m.text)
		}
	}
	is.Equal(got, []string{"if {a > 0 and b > 0 → false} then", "if a > 0 and b {> → >=} 0 then"})
	is.Equal(s.Guards["none"], nil)
	// The scripts in Redis have no marks.
	script := atEnd.ReplaceAllString(s.Files["sample"], "")
	is.Equal(s.Guards["both"].Rewrite("x = 1\n"+script), "x = 1\n"+strings.Replace(script, "a > 0 and b > 0", "true", 1))
}
