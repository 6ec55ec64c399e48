package dash

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
)

// A filter matches by all of its fields.
func TestFilter(t *testing.T) {
	t.Parallel()
	task := &inspect.FailedTask{Key: "k", Kind: inspect.FailureError, Error: "Disk full: 17", Payload: []byte(`{"to":"ann"}`),
		FailedAt: time.Now().Add(-time.Hour), Headers: map[string]string{"tenant": "acme: west", "trace": ""}}
	for query, want := range map[string]bool{
		"": true, "kind=failed": true, "kind=crashed": false, "key=k": true, "key=l": false, "reason=disk.*17": true, "reason=disk$": false, "payload=ann": true, "payload=ben": false,
		"since=2h": true, "since=30m": false, "since=2h&kind=crashed": false,
		"header=tenant": true, "header=trace": true, "header=tenant%3A+acme%3A+west": true, "header=tenant:+acme": false, "header=region": false,
		"group=" + groupOf(task): true, "group=00": false,
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		f, err := filtered(v)
		if err != nil {
			t.Fatal(query, err)
		}
		if got, err := f.picks(&dashboard{}, "q", task, nil); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", query, got, err, want)
		}
		if f.any() != (query == "") {
			t.Errorf("%s: any is %v", query, f.any())
		}
	}
	for _, bad := range []string{"reason=(", "payload=[", "since=soon", "since=-1h", "since=0s", "header=:never", "header=+:", "header=:", "header=+", "reason=" + strings.Repeat("x", 300)} {
		v, err := url.ParseQuery(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := filtered(v); err == nil {
			t.Errorf("%.20s: it's accepted", bad)
		}
	}
}

// A link may have a time that isn't in the list.
func TestSpans(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(len(since(url.Values{"since": {"1h"}})), len(since(nil)))
	all := since(url.Values{"since": {"90m"}})
	is.Equal(all[len(all)-1], choice{"90m", "90m"})
}
