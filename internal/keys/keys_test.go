package keys

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"emails": true, "a:b_c*?[]": true, "ü✓": true, "\xff\xfe": false, "a\xc3": false,
		strings.Repeat("x", MaxName): true,
		"":                           false, "{": false, "a}": false, "a b": false, "a\x00": false, "a\n": false, "\x7f": false,
		strings.Repeat("x", MaxName+1): false,
	} {
		t.Run(name, func(t *testing.T) {
			is.New(t).Equal(CheckName(name) == nil, good)
		})
	}
	is.New(t).NoErr(CheckPrefix(""))
	for prefix, good := range map[string]bool{
		"worker": true, "a:workers": true, "a:failed:b": true, "aworker:b": true,
		"a{b}": false, "a:failed": false, "a:worker": false, "a:worker:b": false,
	} {
		is.New(t).Equal(CheckPrefix(prefix) == nil, good)
	}
}

// Channels outside of the namespace aren't parsed. FuzzNames covers those inside.
func TestForeignChannels(t *testing.T) {
	for _, channel := range []string{"other_{q}_work", "worqr_q_work"} {
		_, _, ok := NewSpace("worqr").ParseChannel(channel)
		is.New(t).True(!ok)
	}
}

func TestPattern(t *testing.T) {
	is.New(t).Equal(NewSpace("a*b").Pattern(KindDone), `a\*b_{*}_done`)
}
