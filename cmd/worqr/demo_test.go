package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

// asCommand is the environment variable that makes the test binary run the command.
const asCommand = "WORQR_TEST_AS_COMMAND"

// TestMain may run the command: the demo starts its own program once for each
// peer.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "peer" || os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(redistest.Main(m.Run))
}

// story lists the demo's notes.
var story = []string{
	`film 001 starts on peer \d`,
	`backup 004 is scheduled for \d\.\d s, under the key "nightly"`,
	`backup 004 starts on peer \d, \d+ ms after its time`,
	`mail 002 fails on peer \d: the mail server is busy; retry in 300 ms`,
	`mail 002 is retried on peer \d, ([3-9]\d\d|1[0-4]\d\d) ms later`, // the default is at least 1500
	`mail 002 fails on peer \d: the mail server is busy; retry in 600 ms`,
	`mail 002 finishes on attempt 3`,
	`peer \d is killed`,
	`invoice 003 goes to the failed queue: the customer has no address`,
	`to the front of the queue`,
	`film 001 starts again`,
	`invoice 003 is requeued`,
	`invoice 003 finishes in the end`,
	`context\.Cause is worqr\.ErrCanceled`,
	`1 stopped`,
	`of 1 scheduled, \d+ ms after its time`,
}

func TestDemo(t *testing.T) {
	for name, url := range map[string]string{"in this process": "", "given": redistest.URL()} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			var out bytes.Buffer
			c := demoCommand{Redis: url, Seconds: 6, Plain: true}
			err := c.Run(t.Context(), &out)
			t.Log("\n" + out.String())
			is.NoErr(err)

			n := figures(t, out.String())
			is.Equal(n["lost"], 0)
			is.Equal(n["canceled"], 1)
			is.True(n["enqueued"] > 100)
			is.Equal(n["enqueued"], n["finished"]+n["canceled"]+n["in the queue"]+n["still failed"])
			is.True(n["returned"] > 0)
			is.True(n["started twice"] > 0)
			is.Equal(n["retried"], flaws)
			is.Equal(n["failed"], 1)
			is.Equal(n["still failed"], 0)
			is.Equal(n["on time"], 1)
			for _, told := range story {
				if !regexp.MustCompile(told).MatchString(out.String()) {
					t.Errorf("no note matches %s", told)
				}
			}
			is.True(!strings.Contains(out.String(), "\x1b")) // no escapes if it isn't a terminal
			if url != "" {
				is.Equal(redistest.Keys(t, redistest.Conn(t), "worqr-demo-*"), nil) // nothing is left behind
			}
		})
	}
}

// With --json, each note is a line, and the last line has the figures.
func TestDemoJSON(t *testing.T) {
	is := redistest.Parallel(t)
	var out bytes.Buffer
	c := demoCommand{form: form{JSON: true}, Seconds: 4}
	is.NoErr(c.Run(t.Context(), &out))
	var row map[string]any
	n := 0
	for line := range strings.Lines(out.String()) {
		row = nil
		is.NoErr(json.Unmarshal([]byte(line), &row))
		n++
	}
	is.True(n > 10)
	is.Equal([]any{row["lost"], row["canceled"]}, []any{0., 1.})
}

// figures reads the summary.
func figures(t *testing.T, out string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)  (enqueued|finished|canceled|in the queue|still failed|lost|returned|started twice|retried|failed|on time)\b`).FindAllStringSubmatch(out, -1) {
		v := redistest.Sure(strconv.Atoi(m[1]))(t)
		n[m[2]] = v
	}
	if len(n) != 11 {
		t.Fatalf("the summary has %d figures, want 11", len(n))
	}
	return n
}

// A heckler is a stage that ends the demo at a certain note, and records what was
// painted next to the queue.
type heckler struct {
	at  string
	end context.CancelFunc

	scheduled, failed string
}

func (h *heckler) paint(p *picture) {
	h.scheduled += strings.Join(p.scheduled, "\n") + "\n"
	h.failed += strings.Join(p.failed, "\n") + "\n"
}

func (h *heckler) close() {}
func (h *heckler) note(n note) {
	if strings.Contains(n.text, h.at) {
		h.end()
	}
}

// Interrupting the demo before other peers have a killed peer's tasks doesn't lose
// them.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{
		"serve the queue", "is scheduled for", "fails on", "is killed", "failed queue", "starts again", "is requeued", "is canceled",
	} {
		t.Run(at, func(t *testing.T) {
			is := redistest.Parallel(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := demoCommand{Seconds: 5}
			h := &heckler{at: at, end: cancel}
			s, story, err := c.show(ctx, h)
			is.NoErr(err)
			is.True(strings.Contains(fmt.Sprint(story), "interrupted"))
			is.Equal(s.Lost, 0)
			is.Equal(s.Enqueued, s.Finished+s.Canceled+s.Left+s.Stuck)
			is.Equal(s.Stuck == 1, s.Failed == 1 && s.Fixed == 0)
			is.True(s.Stuck == 1 || at != "failed queue")
			is.Equal(s.Canceled == 1, at == "is canceled")
			if at != "is requeued" {
				return
			}
			is.True(regexp.MustCompile(`backup 004 in \d\.\d s`).MatchString(h.scheduled))
			is.True(regexp.MustCompile(`mail 002 in \d\.\d s`).MatchString(h.scheduled))
			is.True(strings.Contains(h.failed, "invoice 003: the customer has no address"))
		})
	}
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
