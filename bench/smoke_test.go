package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redisserver"
)

// TestMain also acts as the command, because each measurement starts its own program.
func TestMain(m *testing.M) {
	if j, given := child.Given[job](); given {
		os.Exit(childMain(j))
	}
	os.Exit(m.Run())
}

// needsServer skips a test if there is no server to start.
func needsServer(t *testing.T) {
	t.Helper()
	if _, err := redisserver.Program(); err != nil {
		t.Skip("skipped:", err)
	}
}

// Every scenario is measured, except for the recovery of asynq, and appears in the report.
func TestShort(t *testing.T) {
	needsServer(t)
	if testing.Short() {
		t.Skip("it measures everything, if only for a moment; run it without -short")
	}
	is := is.New(t)
	r := request{scale: scale{short: true}, rounds: 1, together: true, out: t.TempDir(), log: t.Output(), command: "go test"}
	chosen, err := r.chosen()
	is.NoErr(err)
	began := time.Now()
	found, err := r.results(t.Context(), chosen)
	is.NoErr(err)
	for _, p := range chosen {
		for _, s := range p.steps {
			is.Equal(len(found[s.cell]), 1) // one round
			values := found[s.cell][0]
			is.True(len(values) > 0)
			for name, v := range values {
				if v < 0 || v == 0 && !strings.HasSuffix(name, "/s") && name != "early" { // in such a short time, a rate may be zero
					t.Errorf("%s: %s is %v", s.cell, name, v)
				}
			}
		}
	}

	is.NoErr(r.write(t.Context(), chosen, found, began))
	written, err := os.ReadFile(filepath.Join(r.out, "performance.md"))
	is.NoErr(err)
	text := string(written)
	for _, g := range goals {
		is.True(strings.Contains(text, "| "+g.what+" | "+g.aim()+" | ")) // each goal is evaluated
	}
	is.True(!strings.Contains(text, " – ")) // no value is missing

	hand := "# By hand\n" + text + "by hand, too\n"
	is.NoErr(os.WriteFile(filepath.Join(r.out, "performance.md"), []byte(hand), 0o644))
	is.NoErr(replaceBetweenMarks(filepath.Join(r.out, "performance.md"), "new"))
	written, err = os.ReadFile(filepath.Join(r.out, "performance.md"))
	is.NoErr(err)
	is.True(strings.HasPrefix(string(written), "# By hand\n") && strings.HasSuffix(string(written), "by hand, too\n"))
	is.True(strings.Contains(string(written), "\nnew\n") && !strings.Contains(string(written), "| goal |"))
}

func TestFigure(t *testing.T) {
	is := is.New(t)
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.0123: "0.01", 0.1234: "0.12", 12.34: "12.3", 1234: "1234", 12345: "12.3 k", 1234567: "1.23 M",
	} {
		is.Equal(figure(v), want)
	}
	s, ok := summarize([]float64{3, 1, 2, 10})
	is.True(ok)
	is.Equal(s, summary{median: 2.5, min: 1, max: 10})
	is.Equal(percentile([]float64{1, 2, 3, 4}, 0), 1.0)
	is.Equal(percentile([]float64{1, 2, 3, 4}, 50), 2.0)
	is.Equal(percentile([]float64{1, 2, 3, 4}, 99), 4.0)
}
