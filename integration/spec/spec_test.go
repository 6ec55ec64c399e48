package spec

import (
	"regexp"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// ofSpec is what the specification leaves out.
var ofSpec = []difference{
	{
		what:    "there are no users who may do less than others",
		request: []any{"ACL", "SETUSER", "somebody"},
		redis:   "OK",
		other:   "ERR unknown command 'ACL'",
		tests:   regexp.MustCompile(`^TestMute$|^TestMute/|^TestGuardLook$|^TestGuardAlone$|^TestGuardObserved/unknown$|^TestHintsOnly/.*/channels$`),
	},
	{
		what:    "nobody can subscribe to a pattern",
		request: []any{"PSUBSCRIBE", "somebody*"},
		redis:   "[",
		other:   "ERR unknown command",
		tests:   regexp.MustCompile(`^TestGuardObserved/pattern$`),
	},
}

func serve(t *testing.T) *Server {
	t.Helper()
	m := redistest.Sure(Serve())(t)
	t.Cleanup(m.Close)
	return m
}

// TestLimits asks the specification and Redis what that table is about.
func TestLimits(t *testing.T) {
	m := serve(t)
	for _, d := range ofSpec {
		d.compare(t, redistest.URL(), m.URL())
	}
}

// TestTablesOnSpec runs the tables on the specification.
func TestTablesOnSpec(t *testing.T) {
	leaves, out := tables(t, serve(t).URL())
	judge(t, leaves, out, ofSpec)
}
