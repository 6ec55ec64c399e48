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

// Channels are read back whatever separators names contain.
func TestChannels(t *testing.T) {
	for _, prefix := range []string{"worqr", "a_b:c", "x_{no"} {
		if CheckPrefix(prefix) != nil {
			continue
		}
		for _, name := range []string{"q", "a_b", "a:b", "_done", "q_work:w"} {
			s := NewSpace(prefix)
			for _, k := range []Kind{KindWork, KindEnqueue, KindDone, KindCancel, KindDelete} {
				queue, kind, ok := s.ParseChannel(s.Queue(name).Channel(k))
				is := is.New(t)
				is.True(ok)
				is.Equal(queue, name)
				is.Equal(kind, k)
			}
			queue, kind, ok := s.ParseChannel(s.Queue(name).Wake("id:with_{odd}_parts"))
			is := is.New(t)
			is.True(ok)
			is.Equal(queue, name)
			is.Equal(kind, Kind("wake"))
		}
	}
	_, _, ok := NewSpace("worqr").ParseChannel("other_{q}_work")
	is.New(t).True(!ok)
	_, _, ok = NewSpace("worqr").ParseChannel("worqr_q_work")
	is.New(t).True(!ok)
}

func TestPattern(t *testing.T) {
	is.New(t).Equal(NewSpace("a*b").Pattern(KindDone), `a\*b_{*}_done`)
}
