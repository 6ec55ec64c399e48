package calls

import (
	"slices"
	"testing"
)

// The names are those in the headers of the scripts.
func TestForms(t *testing.T) {
	for verb, want := range map[string][]string{
		"enqueue": {"channel", "window"},
		"start":   {"prefix", "tail", "worker", "round", "stamp", "lease", "wanted", "ahead", "idle", "solo", "max crashes"},
		"leave":   {"prefix", "tail", "worker", "round"},
		"agree":   {"newest", "oldest"},
	} {
		if !slices.Equal(forms[verb], want) {
			t.Errorf("%s has the arguments %q, want %q", verb, forms[verb], want)
		}
	}
}
