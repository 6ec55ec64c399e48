package dash

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// Expressions that take long, or much memory, are refused before they're compiled; usual ones aren't.
func TestLargeExpressions(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		`timeout|refused|reset by peer`:                                true,
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`: true,
		`^{"to":"[^"]{1,64}@(example|acme)\.(com|org)"`:                true,
		`.{0,200}x`: true, `\pL{500}`: true, strings.Repeat("x", 200): true,
		`x{1000}`: false, `((((x{30}){30}){30}){30}){2}`: false, `(.{0,40}.{0,40}){20}y`: false, `(x{40}|y{40}){20,}`: false,
		strings.Repeat("(x|y{9}){9}", 18): false, strings.Repeat("x", 201): false,
	} {
		if _, err := compiled("payload", text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A long text is matched in pieces, which makes no difference to what matches.
func TestPieces(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	long := strings.Repeat("ä€x\xff\n", piece)
	for _, text := range []string{"", "x", long, long + "end", "begin" + long, long[:piece-1] + "middle" + long} {
		for _, of := range []string{"", "^begin", "end$", "middle", "x", "^x", `\xff`, "[^x]{3}x", `(?s)^.*$`, `(?s).{900}middle`} {
			e, err := compiled("payload", of)
			is.NoErr(err)
			got, err := e.matches(text, func() error { return nil })
			is.NoErr(err)
			is.Equal(got, regexp.MustCompile("(?i)"+of).MatchString(text))
		}
	}
}

// If matching mustn't go on, it ends after one more piece, with an error: otherwise the end of the piece would pass
// for the end of the text, and a task that doesn't match would be deleted.
func TestMatchingEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	e, err := compiled("payload", `(x{20}){40}$`)
	is.NoErr(err)
	stop, n := errors.New("stop"), 0
	got, err := e.matches(strings.Repeat("x", 50*piece), func() error {
		if n++; n > 3 {
			return stop
		}
		return nil
	})
	is.Equal(err, stop)
	is.Equal(got, false)
	is.Equal(n, 4)
}
