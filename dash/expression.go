package dash

import (
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// An expression is a regular expression that a visitor has typed. Matching takes time in proportion to its size and
// to the length of the text, so both have limits.
type expression struct {
	re    *regexp.Regexp
	steps int // at most this many for each byte of a text
}

// Limits of an expression.
const (
	longestExpression = 200   // bytes
	largestExpression = 1_000 // instructions: counted repetitions multiply them
	fewSteps          = 1 << 14
	piece             = 1 << 10 // characters of a text between two looks at whether to go on
)

// compiled returns the expression for what, such as the payload.
func compiled(what, text string) (*expression, error) {
	if len(text) > longestExpression {
		return nil, fmt.Errorf("the expression for the %s is longer than %d bytes", what, longestExpression)
	}
	tree, err := syntax.Parse("(?i)"+text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the expression for the %s isn't valid: %s", what, strings.Replace(strings.TrimPrefix(err.Error(), "error parsing regexp: "), "(?i)", "", 1))
	}
	size := instructions(tree)
	if size > largestExpression { // before it's compiled, since that needs memory for each instruction
		return nil, fmt.Errorf("the expression for the %s has too many repetitions; write * or + instead of {…}", what)
	}
	return &expression{regexp.MustCompile("(?i)" + text), size}, nil
}

// instructions returns about how many instructions an expression is compiled to, or more than largestExpression.
func instructions(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpRepeat:
		n = n*max(re.Min, re.Max, 1) + max(re.Max-re.Min, 1)
	case syntax.OpCapture:
		n += 2
	case syntax.OpConcat:
	default:
		n++
	}
	return min(n, largestExpression+1)
}

// busy has room for one: expressions and texts that need many steps are matched one at a time, so that searches
// leave the other cores to the process.
var busy = make(chan struct{}, 1)

// matches reports whether a text matches. If that needs many steps, it calls goOn again and again. If goOn fails,
// so does matches.
func (e *expression) matches(text string, goOn func() error) (bool, error) {
	if len(text)*e.steps <= fewSteps {
		return e.re.MatchString(text), nil
	}
	r := &pieces{rest: text, goOn: goOn}
	busy <- struct{}{}
	defer func() { <-busy }()
	found := e.re.MatchReader(r)
	return found && r.err == nil, r.err
}

// pieces reads a text. If it mustn't go on, the text seems to end.
type pieces struct {
	rest string
	n    int
	goOn func() error
	err  error
}

func (p *pieces) ReadRune() (rune, int, error) {
	if p.n++; p.n%piece == 1 && p.err == nil {
		<-busy // others get their turn
		p.err = p.goOn()
		busy <- struct{}{}
	}
	if p.err != nil || p.rest == "" {
		return 0, 0, io.EOF
	}
	r, size := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[size:]
	return r, size, nil
}
