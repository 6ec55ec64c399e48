package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// The benchmark measures something, and leaves nothing behind.
func TestBench(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	out, status := command(t, "", "bench", "--redis", server.URL(), "--tasks", "300", "--json")
	is.Equal(status, exitWell)
	var row map[string]float64
	is.NoErr(json.Unmarshal([]byte(out), &row))
	is.Equal(row["tasks"], 300.)
	for _, name := range []string{"enqueued_per_second", "finished_per_second", "latency_seconds"} {
		is.True(row[name] > 0)
	}
	is.Equal(len(redistest.Keys(t, c, "*")), 0)
	out, status = command(t, "", "bench", "--redis", server.URL(), "--tasks", "0")
	is.Equal(status, exitFailed)
	is.True(out != "")
}

// A user with the rules in docs/security.md may use one prefix, but not the benchmark's. It reports a missing
// permission before it measures anything, even if only the one to clean up is missing.
func TestBenchAsWorker(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "untidy", "on", ">SECRET", "~*", "&*", "+@all", "-scan")
	out, status := command(t, "", "bench", "--redis", "redis://untidy:SECRET@"+server.Addr())
	is.Equal(status, exitFailed)
	is.True(strings.Contains(out, "the keys could not be removed at the end"))
	is.Equal(len(redistest.Keys(t, c, "*")), 0)
}
