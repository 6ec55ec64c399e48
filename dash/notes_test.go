package dash

import (
	"net/url"
	"strings"
	"testing"
)

// A page describes what an action did, whatever a link contains.
func TestDone(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"": "", "n=1": "", "did=nosuch": "", "did=nosuch&n=1": "", "did=requeue-matching&n=1": "",
		"did=pause": notes[Pause], "did=pause&n=5": notes[Pause], "did=pause&n=x": notes[Pause],
		"did=cancel": "", "did=cancel&n=": "", "did=cancel&n=x": "", "did=sweep": "",
		"did=discard&n=1": "1 task deleted.", "did=discard&n=0": "0 tasks deleted.", "did=sweep&n=2": "Swept: 2 workers evicted.",
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := done(v); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for did := range actionFuncs {
		for _, n := range []string{"", "1", "-1", "x", "%s"} {
			if got := done(url.Values{"did": {string(did)}, "n": {n}}); strings.Contains(got, "%") {
				t.Errorf("%s, %q: %s", did, n, got)
			}
		}
	}
}
