package mutant

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

const sample = `local n = 5 - #ARGV
-- a comment, and not (one)
local function f(a, b)
  if not a and b < 3 or a then -- why
    redis.pcall('DEL', "x")
    return math.max(n, b)
  end
  n = n + #KEYS[1]
end
later(function(q)
  function q.drop()
    f(n)
  end
end, q)
`

func TestBreed(t *testing.T) {
	is := is.New(t)
	all, err := breed("sample", sample)
	is.NoErr(err)
	var got []string
	for _, m := range all {
		got = append(got, m.String())
	}
	is.Equal(strings.Join(got, "\n"), `sample:1:sum: local n = {5 - #ARGV → #ARGV}
sample:1:sum: local n = {5 - #ARGV → 5}
sample:1:constant: local n = {5 → 6} - #ARGV
sample:4:true: f: if {not a and b < 3 or a → true} then
sample:4:false: f: if {not a and b < 3 or a → false} then
sample:4:negated: f: if {not a and b < 3 or a → not (not a and b < 3 or a)} then
sample:4:operand: f: if {not a and b < 3 or a → a} then
sample:4:operand: f: if {not a and b < 3 → b < 3} or a then
sample:4:negated: f: if {not a → a} and b < 3 or a then
sample:4:operand: f: if {not a and b < 3 → not a} or a then
sample:4:operand: f: if {not a and b < 3 or a → not a and b < 3} then
sample:4:bound: f: if not a and b {< → <=} 3 or a then
sample:4:constant: f: if not a and b < {3 → 4} or a then
sample:5:omitted: f: {redis.pcall('DEL', "x") → }
sample:5:raised: f: redis.{pcall → call}('DEL', "x")
sample:6:clamp: f: return {math.max(n, b) → n}
sample:6:clamp: f: return {math.max(n, b) → b}
sample:8:sum: f: n = {n + #KEYS[1] → #KEYS[1]}
sample:8:sum: f: n = {n + #KEYS[1] → n}
sample:10:omitted: {later(function(q) function q.drop() f(n) end end, q) → }
sample:12:omitted: q.drop: {f(n) → }`)
}

func TestScan(t *testing.T) {
	is := is.New(t)
	for _, bad := range []string{"f(", "f)", "x = 'a"} {
		_, err := scan(bad)
		is.True(err != nil)
	}
}
