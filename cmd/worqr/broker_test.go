package main

import (
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// A user with the rules in docs/security.md may use one prefix, but not the demo's. The demo reports
// missing permissions before it does anything, even if only the one to clean up is missing.
func TestDemoAsWorker(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "worker", "on", ">SECRET", "~worqr:*", "&*", "+@all")
	redistest.Do(t, c, "ACL", "SETUSER", "untidy", "on", ">SECRET", "~*", "&*", "+@all", "-scan")
	for _, user := range []string{"worker", "untidy"} {
		var out, errs strings.Builder
		is.Equal(run([]string{"demo", "--redis", "redis://" + user + ":SECRET@" + server.Addr()}, strings.NewReader(""), &out, &errs), exitFailed)
		is.True(strings.Contains(errs.String(), "needs the keys worqr-demo-*"))
		is.Equal(len(redistest.Keys(t, c, "*")), 0)
	}
}
