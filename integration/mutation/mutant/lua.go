package mutant

import (
	"fmt"
	"strings"
)

// A token of Lua, as far as the scripts use the language. An opening bracket has
// the index of its closing one.
type token struct {
	kind     kind
	text     string
	from, to int // bytes of the source
	match    int // index of the closing bracket
}

type kind byte

const (
	word    kind = iota // a name, or true, false and nil
	keyword             // except for and, or and not, which are operators
	number
	text
	operator
)

var keywords = map[string]kind{
	"and": operator, "or": operator, "not": operator,
	"break": keyword, "do": keyword, "else": keyword, "elseif": keyword, "end": keyword, "for": keyword,
	"function": keyword, "if": keyword, "in": keyword, "local": keyword, "repeat": keyword, "return": keyword,
	"then": keyword, "until": keyword, "while": keyword,
}

// scan splits a source into tokens. It doesn't support long strings or block comments.
func scan(src string) (all []token, err error) {
	var open []int
	for i := 0; i < len(src); {
		switch {
		case strings.HasPrefix(src[i:], "--"):
			for i < len(src) && src[i] != '\n' {
				i++
			}
			continue
		case src[i] == ' ' || src[i] == '\n' || src[i] == '\t':
			i++
			continue
		}
		t := token{from: i}
		t.to, t.kind = endOfToken(src, i)
		if i = t.to; i > len(src) {
			return nil, fmt.Errorf("a string that begins at byte %d does not end", t.from)
		}
		t.text = src[t.from:t.to]
		switch t.text {
		case "(", "[", "{":
			open = append(open, len(all))
		case ")", "]", "}":
			if len(open) == 0 {
				return nil, fmt.Errorf("the bracket at byte %d closes nothing", t.from)
			}
			all[open[len(open)-1]].match = len(all)
			open = open[:len(open)-1]
		}
		all = append(all, t)
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("the bracket at byte %d is not closed", all[open[0]].from)
	}
	return all, nil
}

// endOfToken returns the end and the kind of the token that begins at a byte. A string without an end is longer
// than the source.
func endOfToken(src string, from int) (to int, _ kind) {
	letter := func(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	i := from
	switch c := src[i]; {
	case letter(c):
		for i < len(src) && (letter(src[i]) || digit(src[i])) {
			i++
		}
		return i, keywords[src[from:i]]
	case digit(c):
		for i < len(src) && digit(src[i]) {
			i++
		}
		return i, number
	case c == '\'' || c == '"':
		for i++; i < len(src) && src[i] != c; i++ {
			if src[i] == '\\' {
				i++
			}
		}
		return i + 1, text
	}
	for _, long := range []string{"...", "..", "==", "~=", "<=", ">="} {
		if strings.HasPrefix(src[from:], long) {
			return from + len(long), operator
		}
	}
	return from + 1, operator
}

// A span is a run of tokens, from up to (not including) to.
type span struct{ from, to int }

// A segment is an expression that isn't part of another, except in brackets, the
// left side of an assignment, or a call statement.
type segment struct {
	span
	after  string // the token before it; "" at the beginning of a statement
	before string // the token after it
}

// segments finds the segments in a run of tokens. To find those in brackets, call it with the
// inside of the brackets.
func segments(all []token, s span) (found []segment) {
	now := segment{span: span{s.from, s.from}}
	end := func(at, next int, after, before string) {
		if now.to = at; now.to > now.from {
			now.before = before
			found = append(found, now)
		}
		now = segment{span: span{next, next}, after: after}
	}
	for i := s.from; i < s.to; i++ {
		t := all[i]
		switch {
		case t.kind == keyword, t.text == ",", t.text == ";", t.text == "=":
			after := t.text
			switch after {
			case "then", "do", "else", "end", "repeat", "break":
				after = ""
			}
			end(i, i+1, after, t.text)
			continue
		case i > now.from && ends(all[i-1]) && begins(t):
			end(i, i, "", t.text)
		}
		if t.match > 0 {
			i = t.match
		}
	}
	end(s.to, s.to, "", "")
	return found
}

// If a token that ends an operand precedes one that begins an operand, a
// statement has ended.
func ends(t token) bool {
	return t.kind == word || t.kind == number || t.kind == text || t.text == ")" || t.text == "]" || t.text == "}"
}

func begins(t token) bool {
	return t.kind == word || t.kind == number || t.kind == text || t.text == "{" || t.text == "#" || t.text == "not"
}

// split divides a run of tokens at the operators outside brackets. Without any
// there is one part.
func split(all []token, s span, operators ...string) (parts []span, at []int) {
	from := s.from
	for i := s.from; i < s.to; i++ {
		t := all[i]
		for _, o := range operators {
			if t.kind == operator && t.text == o {
				parts, at, from = append(parts, span{from, i}), append(at, i), i+1
			}
		}
		if t.match > 0 {
			i = t.match
		}
	}
	return append(parts, span{from, s.to}), at
}
