package past

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
)

func attempt(worker, text string, started int64) inspect.Attempt {
	return inspect.Attempt{WorkerID: worker, StartedAt: time.UnixMilli(started), EndedAt: time.UnixMilli(started + 5), Error: text}
}

func TestText(t *testing.T) {
	long := strings.Repeat("x", 201)
	for name, c := range map[string]struct {
		text  Text
		last  string
		tried []inspect.Attempt // newest first
	}{
		"nothing":      {},
		"no list":      {text: "w:1:2:no", last: "w:1:2:no"},
		"newest first": {text: "b\x00v:1:6:a\x00w:7:12:b", last: "b", tried: []inspect.Attempt{attempt("w", "b", 7), attempt("v", "a", 1)}},
		"no error":     {text: "\x00w:1:6:", tried: []inspect.Attempt{attempt("w", "", 1)}},
		"colons":       {text: "a: b\x00w:1:6:a: b", last: "a: b", tried: []inspect.Attempt{attempt("w", "a: b", 1)}},
		"garbage":      {text: "a\x00\x00no\x00w:1:6:a\x00w:6:1:back\x00w:x:1:\x00:1:2:nobody\x00a b:1:2:\x00w:0:1:\x00w:-1:1:\x00w:1:9223372036854775807:\x00w:1:281474976710655:x\x00w:1:6:\xff\x00", last: "a", tried: []inspect.Attempt{attempt("w", "a", 1)}},
		"long error":   {text: Text("a\x00w:1:6:" + long), last: "a"},
		"long list":    {text: Text("a\x00w:1:6:a" + strings.Repeat("\x00", maxList)), last: "a"},
	} {
		if last, tried := c.text.Last(), c.text.Attempts(); last != c.last || !slices.Equal(tried, c.tried) {
			t.Errorf("%s: %q, %v", name, last, tried)
		}
	}
}

func TestListIsBounded(t *testing.T) {
	is := is.New(t)
	worker := strings.Repeat("w", 36)
	brief := attempt(worker, "no", 1<<40)
	is.Equal(len(Text(List(brief, brief, brief, brief, brief, brief)).Attempts()), most)
	long := attempt(worker, strings.Repeat("ä", 200), 1<<40)
	list := List(long, long, long, long, long)
	is.True(len(list) <= maxList && len(Text(list).Attempts()) == 3)
	is.Equal(Text(list).Attempts()[0].Error, strings.Repeat("ä", 100))
	back := inspect.Attempt{WorkerID: "w", StartedAt: time.UnixMilli(9), EndedAt: time.UnixMilli(3), Error: "a\x00b\xff"}
	is.Equal(List(back), "\x00w:9:9:a b")
}

// Whatever a text has, what is shown of it can be written and read again, and an error doesn't break the list.
func FuzzText(f *testing.F) {
	f.Add("no\x00w:1:6:no\x00v:7:12:\xe4", "ä\x00")
	f.Add("\x00:::\x00w:1:1:", strings.Repeat("ä", 101))
	f.Fuzz(func(t *testing.T, text, failure string) {
		is := is.New(t)
		before := Text(text).Attempts()
		list := List(append([]inspect.Attempt{attempt("w", failure, 1)}, before...)...)
		after := Text("no" + list).Attempts()
		is.True(len(list) <= maxList && utf8.ValidString(after[0].Error) && len(after[0].Error) <= maxError)
		is.True(slices.Equal(after[1:], before[:len(after)-1]))
	})
}
