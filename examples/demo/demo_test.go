package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// TestMain may be a peer: the demo starts its own program once for each.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "peer" {
		if err := run(os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(redistest.Main(m.Run))
}

// story lists what the demo says.
var story = []string{
	`go run \./cmd/worqr top --redis redis://127\.0\.0\.1:\d+\n`,
	`film starts on peer \d; it takes an hour`,
	`mail fails on peer \d: the mail server is busy; retry in 500ms`,
	`mail is retried on peer \d`,
	`mail fails on peer \d: the mail server is busy; retry in 1s`,
	`\d+ waiting, \d+ running`,
	`peer \d is killed while it holds \w+ task`,
	`peer \d returns \w+ tasks? to the front of the queue`,
	`film starts again, on peer \d`,
	`film is canceled`,
	`\d+ ms later no copy runs`,
}

func TestDemo(t *testing.T) {
	is := redistest.Parallel(t)
	var b bytes.Buffer
	err := run([]string{"-seconds", "6"}, &b)
	out := b.String()
	t.Log("\n" + out)
	is.NoErr(err)
	n := figures(t, out)
	is.Equal(n["lost"], 0)
	is.Equal(n["canceled"], 1)
	is.True(n["enqueued"] > 100)
	is.Equal(n["enqueued"], n["finished"]+n["canceled"]+n["in the queue"])
	is.True(n["returned"] > 0)
	is.True(n["started again"] > 0)
	is.Equal(n["retried"], 2)
	for _, told := range story {
		if !regexp.MustCompile(told).MatchString(out) {
			t.Errorf("nothing matches %s", told)
		}
	}
}

// figures reads the summary.
func figures(t *testing.T, out string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)  (enqueued|finished|canceled|in the queue|lost|returned|started again|retried)\b`).FindAllStringSubmatch(out, -1) {
		n[m[2]] = redistest.Sure(strconv.Atoi(m[1]))(t)
	}
	if len(n) != 8 {
		t.Fatalf("the summary has %d figures, want 8:\n%s", len(n), out)
	}
	return n
}

// A heckler ends the demo when it says something.
type heckler struct {
	bytes.Buffer
	at  string
	end context.CancelFunc
}

func (h *heckler) Write(text []byte) (int, error) {
	if strings.Contains(string(text), h.at) {
		h.end()
	}
	return h.Buffer.Write(text)
}

// Interrupting the demo loses no task, even before other peers have those of a killed peer.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{"serve the queue", "mail fails", "is killed", "starts again", "is canceled"} {
		t.Run(at, func(t *testing.T) {
			is := redistest.Parallel(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := &heckler{at: at, end: cancel}
			is.NoErr(show(ctx, 5*time.Second, h))
			n := figures(t, h.String())
			is.True(strings.Contains(h.String(), "interrupted"))
			is.Equal(n["lost"], 0)
			is.Equal(n["canceled"] == 1, at == "is canceled")
		})
	}
}

// A demo that loses tasks says so, and fails.
func TestDemoLoses(t *testing.T) {
	is := redistest.Parallel(t)
	_, q := peertest.OpenQueue(t, worqr.Options{})
	var out bytes.Buffer
	d := &demo{queue: q, out: &out, keys: []string{"gone"}}
	is.Equal(d.sum(t.Context()), errLost)
	is.Equal(figures(t, out.String())["lost"], 1)
}

// Once the demo is interrupted, an overdue act isn't started.
func TestLateAct(t *testing.T) {
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	is.NoErr(until(ctx, time.Now().Add(-time.Second)))
	cancel()
	for range 20 {
		is.True(until(ctx, time.Now().Add(-time.Second)) != nil)
	}
}
