package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/matryer/is"
)

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

func TestBreed(t *testing.T) {
	is := is.New(t)
	all, err := breed("sample", sample)
	is.NoErr(err)
	var got []string
	for _, m := range all {
		got = append(got, m.String())
	}
	is.Equal(strings.Join(got, "\n"), `sample:1:constant: local n = {5 → 6}
sample:4:true: f: if {not a and b < 3 or a → true} then
sample:4:false: f: if {not a and b < 3 or a → false} then
sample:4:negated: f: if {not a and b < 3 or a → not (not a and b < 3 or a)} then
sample:4:operand: f: if {not a and b < 3 or a → a} then
sample:4:operand: f: if {not a and b < 3 → b < 3} or a then
sample:4:negated: f: if {not a → a} and b < 3 or a then
sample:4:operand: f: if {not a and b < 3 → not a} or a then
sample:4:bound: f: if not a and b {< → <=} 3 or a then
sample:4:constant: f: if not a and b < {3 → 4} or a then
sample:4:operand: f: if {not a and b < 3 or a → not a and b < 3} then
sample:5:omitted: f: {redis.pcall('DEL', "x") → }
sample:5:raised: f: redis.{pcall → call}('DEL', "x")
sample:6:clamp: f: return {math.max(n, b) → n}
sample:6:clamp: f: return {math.max(n, b) → b}`)
}

// With its probes a script is the same but for them, and they are where its
// mutants are.
func TestProbed(t *testing.T) {
	is := is.New(t)
	all, err := breed("sample", sample)
	is.NoErr(err)
	var places []place
	for _, m := range all {
		places = append(places, m.place)
	}
	probes := probed("sample", sample, places)
	_, err = scan(probes)
	is.NoErr(err)
	is.True(strings.HasPrefix(probes, prelude))
	for _, p := range places {
		is.Equal(strings.Count(probes, "reach_('"+p.in("sample")+"')"), 1)
	}
	is.True(strings.Contains(probes, ") redis.pcall('DEL', \"x\")"))
}

func TestScan(t *testing.T) {
	is := is.New(t)
	for _, bad := range []string{"f(", "f)", "x = 'a"} {
		_, err := scan(bad)
		is.True(err != nil)
	}
}

// Each mark excuses a mutant, for a reason that there is; and each reason excuses some.
func TestMarks(t *testing.T) {
	is := is.New(t)
	s := &stand{root: "../.."}
	is.NoErr(s.load())
	all, wrong, err := s.breed()
	is.NoErr(err)
	is.Equal(wrong, nil)
	idle := maps.Clone(reasons)
	for _, m := range all {
		maps.DeleteFunc(idle, func(_, why string) bool { return why == m.why })
	}
	is.Equal(len(idle), 0)
}

func TestExcused(t *testing.T) {
	is := is.New(t)
	const src = "if a > 0 and b > 0 then --! look bound.2 false\nend --! page true; what bound\n"
	all, err := breed("sample", src)
	is.NoErr(err)
	is.Equal(excused("sample", src, all), []string{
		"sample:2: page true.0: there is no such mutant, or reason", "sample:2: what bound.0: there is no such mutant, or reason",
	})
	var got []string
	for _, m := range all {
		if m.why == reasons["look"] {
			got = append(got, m.text)
		}
	}
	is.Equal(got, []string{"if {a > 0 and b > 0 → false} then", "if a > 0 and b {> → >=} 0 then"})
}

func TestAsked(t *testing.T) {
	is := is.New(t)
	m := &mutant{file: "step", line: 123, class: bound}
	for only, want := range map[string]bool{"": true, "step": true, "step:123": true, "step:123:bound": true, "step:12": false, "s": false, "step:123:true": false} {
		is.Equal((&report{only: []string{only}}).asked(m), want)
	}
}
