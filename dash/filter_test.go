package dash

import (
	"net/url"
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
		"": true, "kind=failed": true, "kind=crashed": false, "key=k": true, "key=l": false, "reason=FULL: 1": true, "reason=disk$": false, "payload=Ann": true, "payload=ben": false,
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
		if got := f.picks(&dashboard{}, "q", task); got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
		if f.any() != (query == "") {
			t.Errorf("%s: any is %v", query, f.any())
		}
	}
	for _, bad := range []string{"since=soon", "since=-1h", "since=0s", "header=:never", "header=+:", "header=:", "header=+"} {
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

// A reason's newest and oldest tasks are those by when they failed, in whatever order they're listed.
func TestGroupAges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	groups, at := map[string]*group{}, time.Now()
	for _, ago := range []time.Duration{2, 1, 4, 3} {
		note(groups, &inspect.FailedTask{Error: "no", FailedAt: at.Add(-ago * time.Hour)})
	}
	is.Equal(len(groups), 1)
	for _, g := range groups {
		is.Equal(g.Last, at.Add(-time.Hour))
		is.Equal(g.First, at.Add(-4*time.Hour))
	}
}
