package store

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The tests of touch.lua are in touch_test.go: a probe, and a function
// TestTouch… or TestGuardTouch…. What several verbs do together is tested elsewhere.
func TestVerbFiles(t *testing.T) {
	t.Parallel()
	for _, v := range Verbs() {
		file, name := v.Name+"_test.go", ""
		for word := range strings.SplitSeq(v.Name, "_") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		text, err := os.ReadFile(file)
		switch {
		case err != nil:
			t.Errorf("%s has no test file: %v", v.Name, err)
		case !regexp.MustCompile(`(?m)^func Test(Guard)?` + name + `([A-Z]\w*)?\(`).Match(text):
			t.Errorf("%s has no function Test%s", file, name)
		case !strings.Contains(string(text), `probed("`+v.Name+`"`):
			t.Errorf("%s has no probe of %s", file, v.Name)
		}
	}
}

// without returns a call that leaves the last argument out, as producers in other languages
// may.
func (v *Verb) without(last string, q keys.Queue, given ...any) redisconn.Call {
	if v.args[len(v.args)-1] != last {
		panic(v.Name + " doesn't end with " + last)
	}
	all := v.line(q, 0, append(given, last, ""))
	return v.begun(q, all[:len(all)-1])
}
