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

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

// TestMain is the command too: the demo starts its own program once for each
// peer.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "peer" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(redistest.Main(m.Run))
}

func TestDemo(t *testing.T) {
	for name, url := range map[string]string{"in this process": "", "given": redistest.URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			var out bytes.Buffer
			c := demoCommand{Redis: url, Seconds: 6, Plain: true}
			err := c.Run(t.Context(), &out)
			t.Log("\n" + out.String())
			is.NoErr(err)

			n := figures(t, out.String())
			is.Equal(n["lost"], 0)
			is.Equal(n["canceled"], 1)
			is.True(n["enqueued"] > 100)
			is.Equal(n["enqueued"], n["finished"]+n["canceled"]+n["in the queue"])
			is.True(n["returned"] > 0)
			is.True(n["started twice"] > 0)
			for _, told := range []string{"is killed", "to the front of the queue", "starts again", "context.Cause is worqr.ErrCanceled", "1 stopped"} {
				is.True(strings.Contains(out.String(), told)) // the story
			}
			is.True(!strings.Contains(out.String(), "\x1b")) // no escapes for what is no terminal
			if url != "" {
				is.Equal(redistest.Keys(t, redistest.Conn(t), "worqr-demo-*"), nil) // nothing is left behind
			}
		})
	}
}

// figures reads the summary.
func figures(t *testing.T, out string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+)  (enqueued|finished|canceled|in the queue|lost|returned|started twice)\b`).FindAllStringSubmatch(out, -1) {
		v, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		n[m[2]] = v
	}
	if len(n) != 7 {
		t.Fatalf("the summary has %d figures, want 7", len(n))
	}
	return n
}

// A heckler is a stage that ends the demo at a certain note.
type heckler struct {
	at  string
	end context.CancelFunc
}

func (h *heckler) paint(*picture) {}
func (h *heckler) close()         {}
func (h *heckler) note(n note) {
	if strings.Contains(n.text, h.at) {
		h.end()
	}
}

// What a killed peer held is not lost when the demo is interrupted before
// others have it.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{"serve the queue", "is killed", "starts again", "is canceled"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := demoCommand{Seconds: 5}
			s, story, err := c.show(ctx, &heckler{at, cancel})
			is.NoErr(err)
			is.True(strings.Contains(fmt.Sprint(story), "interrupted"))
			is.Equal(s.Lost, 0)
			is.Equal(s.Enqueued, s.Finished+s.Canceled+s.Left)
			is.Equal(s.Canceled == 1, at == "is canceled")
		})
	}
}

func TestUnreachable(t *testing.T) {
	for _, url := range []string{"redis://127.0.0.1:1", "http://user:secret@host", "redis://user:secret@%zz"} {
		is := is.New(t)
		err := (&demoCommand{Redis: url, Seconds: 5}).Run(t.Context(), &bytes.Buffer{})
		is.True(err != nil)
		is.True(!strings.Contains(err.Error(), "secret"))
	}
}

func TestJob(t *testing.T) {
	is := is.New(t)
	for _, j := range []job{film, photo(2), photo(12345)} {
		again, err := readJob(j.payload())
		is.NoErr(err)
		is.Equal(again, j)
	}
	for _, bad := range []string{"", "x photo 1s", "1 photo x", "1 photo 1s more"} {
		_, err := readJob([]byte(bad))
		is.True(err != nil)
	}
}
