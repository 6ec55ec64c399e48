package spec

import (
	"regexp"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/worqr/worqr/internal/redistest"
)

// A difference is where another server behaves differently from Redis, and the tests of the tables that fail
// because of it.
type difference struct {
	what  string
	tests *regexp.Regexp
}

var noUsers = difference{
	"it has no users with restricted permissions",
	regexp.MustCompile(`^TestDenied/|^TestGuardLook$|^TestGuardObserved/unknown$|^TestHintsOnly/.*/channels$`),
}

func serve(t *testing.T) *Server {
	t.Helper()
	m := redistest.Sure(Serve())(t)
	t.Cleanup(m.Close)
	return m
}

// TestTablesOnSpec runs the tables on the specification.
func TestTablesOnSpec(t *testing.T) {
	leaves, out := tables(t, serve(t).URL())
	judge(t, leaves, out, []difference{noUsers, {"subscribers to patterns are not counted", regexp.MustCompile(`^TestGuardObserved/pattern$`)}})
}

// TestTablesOnMiniredis runs the tables on miniredis. Two other differences are ignored: errors of commands in
// a script have another prefix, and string.match returns no value if nothing matches.
func TestTablesOnMiniredis(t *testing.T) {
	leaves, out := tables(t, "redis://"+miniredis.RunT(t).Addr())
	judge(t, leaves, out, []difference{noUsers,
		{"integer scores that end in many zeros are formatted with an exponent", regexp.MustCompile(`^TestGuardStep/a_token_beyond_all_times`)},
		{"numbers above the largest signed 64-bit integer are not parsed", regexp.MustCompile(`^(TestGuardAddedStarts|TestDeleteAdded)/(of_)?the_last_id_of_a_stream`)}})
}
