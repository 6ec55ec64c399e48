package main

import (
	"encoding/json"
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
