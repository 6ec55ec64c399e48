package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A class is a kind of change.
type class string

const (
	always   class = "true"     // a condition always holds
	never    class = "false"    // a condition never holds
	negated  class = "negated"  // a condition holds when it did not; a "not" is left out
	operand  class = "operand"  // one side of "and" or "or" is left out
	bound    class = "bound"    // a comparison holds for equal ones too, or no more; equal is unequal
	clamp    class = "clamp"    // math.min or math.max is one of its arguments
	constant class = "constant" // a number is one more; true is false
	score    class = "score"    // a bound of a range of scores or names is inclusive, or exclusive; ZADD without NX
	raised   class = "raised"   // what redis.pcall hands back is raised as redis.call does
	omitted  class = "omitted"  // a call that stands alone is not made
)

// A mutant is a script with one change.
type mutant struct {
	file  string // without .lua
	line  int
	class class
	edit  change
	place place  // to be reached for the change to matter
	text  string // the function, and the line with the change in braces
	why   string // it makes no difference; "" where it does
}

// A change replaces bytes of a file.
type change struct {
	from, to int
	by       string
}

func (c change) apply(src string) string { return src[:c.from] + c.by + src[c.to:] }

// A place is an expression, or the begin of a statement if that is empty.
type place struct{ from, to int }

// name is what to call it by on the command line.
func (m *mutant) name() string { return fmt.Sprintf("%s:%d:%s", m.file, m.line, m.class) }

func (m *mutant) String() string { return m.name() + ": " + m.text }

// A breeder finds the mutants of one file.
type breeder struct {
	file, src string
	all       []token
	found     []mutant
}

// breed returns the mutants of a file.
func breed(file, src string) ([]mutant, error) {
	all, err := scan(src)
	if err != nil {
		return nil, fmt.Errorf("%s.lua: %w", file, err)
	}
	b := &breeder{file: file, src: src, all: all}
	b.inside(span{0, len(all)}, true)
	return b.found, nil
}

func (b *breeder) bytes(s span) (from, to int) { return b.all[s.from].from, b.all[s.to-1].to }

func (b *breeder) source(s span) string {
	from, to := b.bytes(s)
	return b.src[from:to]
}

// add adds the mutant in which an expression is replaced.
func (b *breeder) add(c class, s span, by string) {
	from, to := b.bytes(s)
	b.put(c, change{from, to, by}, place{from, to})
}

func (b *breeder) put(c class, e change, p place) {
	from := strings.LastIndexByte(b.src[:e.from], '\n') + 1
	rest, _, _ := strings.Cut(b.src[e.to:], "\n")
	rest, _, _ = strings.Cut(rest, " --")
	shown := b.src[from:e.from] + "{" + b.src[e.from:e.to] + " → " + e.by + "}" + rest
	b.found = append(b.found, mutant{
		file: b.file, line: 1 + strings.Count(b.src[:e.from], "\n"), class: c, edit: e, place: p,
		text: strings.Join(strings.Fields(b.function(e.from)+shown), " "),
	})
}

var heads = regexp.MustCompile(`(?m)^(?:local function (\w+)|end$)`)

// function names the one around a byte, with a colon, or is empty.
func (b *breeder) function(at int) string {
	all := heads.FindAllStringSubmatch(b.src[:at], -1)
	if len(all) == 0 || all[len(all)-1][1] == "" {
		return ""
	}
	return all[len(all)-1][1] + ": "
}

// inside goes through a run of tokens: statements, or what is between brackets.
func (b *breeder) inside(s span, statements bool) {
	for _, g := range segments(b.all, s) {
		first := b.all[g.from]
		alone := statements && g.after == "" && g.before != "=" && g.before != "," && b.all[g.to-1].text == ")"
		switch {
		case alone:
			from, to := b.bytes(g.span)
			b.put(omitted, change{from, to, ""}, place{from, from})
		case g.after == "if" || g.after == "elseif" || g.after == "while":
			b.condition(g.span)
		}
		if alone && first.text == "redis" && b.all[g.from+2].text == "pcall" {
			b.put(raised, change{b.all[g.from+2].from, b.all[g.from+2].to, "call"}, place{first.from, first.from})
			b.inside(span{g.from + 4, g.to - 1}, false)
			continue
		}
		if g.after == "function" {
			continue // its name and parameters
		}
		b.expression(g.span)
	}
}

func (b *breeder) condition(s span) {
	b.add(always, s, "true")
	b.add(never, s, "false")
	if _, equal := split(b.all, s, "==", "~=", "and", "or"); len(equal) == 1 && b.all[equal[0]].text[1] == '=' {
		return // to be unequal is another class
	}
	if _, logic := split(b.all, s, "and", "or"); b.all[s.from].text == "not" && logic == nil {
		return // so is to leave out the "not"
	}
	b.add(negated, s, "not ("+b.source(s)+")")
}

var flipped = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}

// expression goes through one, by the precedence of its operators.
func (b *breeder) expression(s span) {
	for _, logic := range []string{"or", "and"} {
		parts, _ := split(b.all, s, logic)
		if len(parts) == 1 {
			continue
		}
		for i, p := range parts {
			var rest []string
			for _, other := range slices.Delete(slices.Clone(parts), i, i+1) {
				rest = append(rest, b.source(other))
			}
			b.add(operand, s, strings.Join(rest, " "+logic+" "))
			b.expression(p)
		}
		return
	}
	if sides, at := split(b.all, s, "<", "<=", ">", ">=", "==", "~="); len(at) == 1 {
		from, to := b.bytes(s)
		t := b.all[at[0]]
		b.put(bound, change{t.from, t.to, flipped[t.text]}, place{from, to})
		b.expression(sides[0])
		b.expression(sides[1])
		return
	}
	if rest := (span{s.from + 1, s.to}); b.all[s.from].text == "not" {
		b.add(negated, s, b.source(rest))
		b.expression(rest)
		return
	}
	for i := s.from; i < s.to; i++ {
		b.leaf(i, s.to)
		if m := b.all[i].match; m > 0 {
			b.group(i, m)
			i = m
		}
	}
}

// leaf looks at one token outside of brackets.
func (b *breeder) leaf(i, end int) {
	t, one := b.all[i], span{i, i + 1}
	switch {
	case t.kind == number:
		if n, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			b.add(constant, one, strconv.FormatInt(n+1, 10))
		}
	case t.text == "true":
		b.add(constant, one, "false")
	case t.text == "false":
		b.add(constant, one, "true")
	case t.text == "'NX'":
		b.put(score, change{t.from, b.all[i+2].from, ""}, place{t.from, t.to})
	case t.kind == text && t.text[1] == '(':
		b.add(score, one, "'"+t.text[2:])
	case t.kind == text && t.text[1] == '[':
		b.add(score, one, "'("+t.text[2:])
	case i+3 < end && t.text == "redis" && b.all[i+2].text == "pcall":
		b.add(raised, span{i, i + 3}, "redis.call")
	case i+3 < end && t.text == "math" && (b.all[i+2].text == "min" || b.all[i+2].text == "max"):
		for _, g := range segments(b.all, span{i + 4, b.all[i+3].match}) {
			b.add(clamp, span{i, b.all[i+3].match + 1}, b.source(g.span))
		}
	}
}

// group looks into brackets.
func (b *breeder) group(open, closed int) {
	if b.all[open].text == "[" && closed == open+2 && b.all[open+1].kind == number {
		return // the place of an argument, or in a reply
	}
	b.inside(span{open + 1, closed}, false)
}
