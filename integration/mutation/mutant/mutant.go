// Package mutant changes the checks of the Lua scripts, one at a time. Marks at the ends of lines record which
// of these changes remove a guard of the protocol, and which of them no test can notice. The scripts in Redis
// have no marks.
package mutant

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Class is a kind of change.
type Class string

const (
	always   Class = "true"     // a condition always holds
	never    Class = "false"    // a condition never holds
	negated  Class = "negated"  // a condition is negated; a "not" is left out
	operand  Class = "operand"  // one side of "and" or "or" is left out
	bound    Class = "bound"    // a comparison includes equality, or no longer does; equal becomes unequal
	clamp    Class = "clamp"    // math.min or math.max becomes one of its arguments
	constant Class = "constant" // a number is one higher; true becomes false
	sum      Class = "sum"      // one side of + or - is left out, on lines with a mark of this class
	score    Class = "score"    // a bound of a range of scores or names is inclusive, or exclusive; ZADD without NX or XX
	side     Class = "side"     // the other end of a list
	raised   Class = "raised"   // an error that redis.pcall returns is raised, as by redis.call
	omitted  Class = "omitted"  // a call statement is left out
)

// A Mutant is a script with one change.
type Mutant struct {
	File  string // without .lua
	Line  int
	Class Class
	Place Place  // must be reached for the change to matter
	Why   string // why it makes no difference; "" if it does

	source string // of the file
	edit   change
	text   string // the function, and the line with the change in braces
}

// Lua is the changed file.
func (m *Mutant) Lua() string { return m.edit.apply(m.source) }

// Rewrite changes a script that is sent to Redis, if the file is part of it.
func (m *Mutant) Rewrite(script string) string {
	return strings.ReplaceAll(script, atEnd.ReplaceAllString(m.source, ""), atEnd.ReplaceAllString(m.Lua(), ""))
}

// A change replaces bytes of a file.
type change struct {
	from, to int
	by       string
}

func (c change) apply(src string) string { return src[:c.from] + c.by + src[c.to:] }

// A Place is an expression, or the beginning of a statement if it's empty.
type Place struct{ From, To int }

// Name returns its name on the command line.
func (m *Mutant) Name() string { return fmt.Sprintf("%s:%d:%s", m.File, m.Line, m.Class) }

func (m *Mutant) String() string { return m.Name() + ": " + m.text }

// A breeder finds the mutants of one file.
type breeder struct {
	file, src string
	all       []token
	found     []Mutant
}

// breed returns the mutants of a file, in order.
func breed(file, src string) ([]Mutant, error) {
	all, err := scan(src)
	if err != nil {
		return nil, fmt.Errorf("%s.lua: %w", file, err)
	}
	b := &breeder{file: file, src: src, all: all}
	b.inside(span{0, len(all)}, true)
	slices.SortStableFunc(b.found, func(a, b Mutant) int { return a.edit.from - b.edit.from })
	return b.found, nil
}

func (b *breeder) bytes(s span) (from, to int) { return b.all[s.from].from, b.all[s.to-1].to }

func (b *breeder) source(s span) string {
	from, to := b.bytes(s)
	return b.src[from:to]
}

// add adds the mutant that replaces an expression.
func (b *breeder) add(c Class, s span, by string) {
	from, to := b.bytes(s)
	b.put(c, change{from, to, by}, Place{from, to})
}

func (b *breeder) put(c Class, e change, p Place) {
	from := strings.LastIndexByte(b.src[:e.from], '\n') + 1
	rest, _, _ := strings.Cut(b.src[e.to:], "\n")
	rest, _, _ = strings.Cut(rest, " --")
	shown := atEnd.ReplaceAllString(b.src[from:e.from]+"{"+b.src[e.from:e.to]+" → "+e.by+"}"+rest, "")
	b.found = append(b.found, Mutant{
		File: b.file, Line: 1 + strings.Count(b.src[:e.from], "\n"), Class: c, Place: p, source: b.src, edit: e,
		text: strings.Join(strings.Fields(b.function(e.from)+shown), " "),
	})
}

var heads = regexp.MustCompile(`(?m)^(?:local function (\w+)|  (?:local )?function ([\w.]+)|end\b)`)

// function returns the name of the function around a byte, with a colon, or "".
func (b *breeder) function(at int) string {
	all := heads.FindAllStringSubmatch(b.src[:at], -1)
	if len(all) == 0 {
		return ""
	}
	if name := all[len(all)-1][1] + all[len(all)-1][2]; name != "" {
		return name + ": "
	}
	return ""
}

// inside handles a run of tokens: statements, or the inside of brackets.
func (b *breeder) inside(s span, statements bool) {
	for _, g := range segments(b.all, s) {
		first := b.all[g.from]
		alone := statements && g.after == "" && g.before != "=" && g.before != "," && b.all[g.to-1].text == ")"
		switch {
		case alone:
			from, to := b.bytes(g.span)
			b.put(omitted, change{from, to, ""}, Place{from, from})
		case g.after == "if" || g.after == "elseif" || g.after == "while":
			b.condition(g.span)
		}
		if alone && first.text == "redis" && b.all[g.from+2].text == "pcall" {
			b.put(raised, change{b.all[g.from+2].from, b.all[g.from+2].to, "call"}, Place{first.from, first.from})
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
		return // becoming unequal is another class
	}
	if _, logic := split(b.all, s, "and", "or"); b.all[s.from].text == "not" && logic == nil {
		return // so is leaving out the "not"
	}
	b.add(negated, s, "not ("+b.source(s)+")")
}

var flipped = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}

// expression handles an expression, by the precedence of its operators.
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
		b.put(bound, change{t.from, t.to, flipped[t.text]}, Place{from, to})
		b.expression(sides[0])
		b.expression(sides[1])
		return
	}
	if rest := (span{s.from + 1, s.to}); b.all[s.from].text == "not" {
		b.add(negated, s, b.source(rest))
		b.expression(rest)
		return
	}
	terms, _ := split(b.all, s, "..")
	for _, t := range terms {
		b.sum(t)
	}
	for i := s.from; i < s.to; i++ {
		b.leaf(i, s.to)
		if m := b.all[i].match; m > 0 {
			b.group(i, m)
			i = m
		}
	}
}

// sum leaves out one side of each + and -.
func (b *breeder) sum(s span) {
	parts, at := split(b.all, s, "+", "-")
	for i, p := range parts {
		if p.from == p.to || i > 0 && parts[i-1].from == parts[i-1].to {
			continue // a sign's
		}
		switch {
		case i > 0:
			b.add(sum, span{s.from, p.to}, b.source(span{s.from, at[i-1]}))
		case len(at) > 0:
			b.add(sum, span{s.from, parts[1].to}, b.source(parts[1]))
		}
	}
}

// leaf handles one token outside brackets.
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
	case t.text == "'LEFT'":
		b.add(side, one, "'RIGHT'")
	case t.text == "'RIGHT'":
		b.add(side, one, "'LEFT'")
	case t.text == "'NX'" || t.text == "'XX'":
		b.put(score, change{t.from, b.all[i+2].from, ""}, Place{t.from, t.to})
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

// group handles the inside of brackets.
func (b *breeder) group(open, closed int) {
	if b.all[open].text == "[" && closed == open+2 && b.all[open+1].kind == number {
		return // the place of an argument, or in a reply
	}
	b.inside(span{open + 1, closed}, b.all[open+1].text == "function") // which has statements
}
