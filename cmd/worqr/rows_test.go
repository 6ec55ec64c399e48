package main

import (
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// JSON output keeps external text byte for byte, and contains no control characters.
func TestJSON(t *testing.T) {
	is := is.New(t)
	type inner struct {
		WorkerID string
		Lease    time.Duration
	}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("CET", 3600))
	for want, v := range map[string]any{
		`"a<b>\"c\""`:                "a<b>\"c\"",
		`"é 漢"`:                      "é 漢",
		`"\u001b\u007f\u009b\u202e"`: "\x1b\x7f\u009b\u202e",
		`"\udb40\udc01"`:             []byte("\U000e0001"),
		`{"base64":"/wA="}`:          inspect.FailureKind("\xff\x00"),
		`90`:                         90 * time.Second,
		`0.000043`:                   43_210 * time.Nanosecond,
		`{"lease_seconds":1,"payload":"","pid":7,"queues":[],"started_at":"2030-01-02T02:04:05Z","worker_id":"w"}`: struct {
			inner
			PID       int
			StartedAt time.Time
			EndedAt   time.Time
			Queues    []string
			Payload   []byte
			Result    []byte
			Recurs    *inner
			Headers   map[string]string
		}{inner: inner{WorkerID: "w", Lease: time.Second}, PID: 7, StartedAt: at, Payload: []byte{}},
		`{"deleted":null,"left":["\u001b",1]}`: map[string]any{"deleted": nil, "left": []any{"\x1b", 1}},
	} {
		var out strings.Builder
		is.NoErr(printJSON(&out, v))
		is.Equal(out.String(), want+"\n")
	}
}

func TestBrief(t *testing.T) {
	is := is.New(t)
	is.Equal(brief("abcdef", 6), "abcdef")
	is.Equal(brief("abcdefg", 6), "abcde…")
	is.Equal(brief(strings.Repeat("😀", 9), 6), "😀😀😀😀😀…")
	is.Equal(brief("\x1b[2J", 20), `\x1b[2J`)
	is.Equal(len([]rune(brief(strings.Repeat("\x1b", 1<<20), 10))), 10)
}

func TestAge(t *testing.T) {
	is := is.New(t)
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 1500 * time.Millisecond: "1.5s", time.Minute: "1m",
		90 * time.Second: "1m30s", 3 * time.Hour: "3h", 50 * time.Hour: "2d2h", -time.Second: "-1.0s", math.MinInt64: "-106751d23h",
	} {
		is.Equal(age(d), want)
	}
	is.Equal(sinceMoment(time.Time{}), "-")
}

// rowsOf yields n numbers, and then an error.
func rowsOf(n int, err error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// Rows before an error are printed.
func TestPrintRows(t *testing.T) {
	is := is.New(t)
	broken := errors.New("broken")
	row := func(i int) []string { return []string{strings.Repeat("x", i), "y"} }
	var out strings.Builder
	n, err := printRows(&out, form{}, "A B", rowsOf(3, broken), row)
	is.True(errors.Is(err, broken))
	is.Equal(n, 3)
	is.Equal(out.String(), "A   B\n    y\nx   y\nxx  y\n")
	out.Reset()
	n, err = printRows(&out, form{JSON: true}, "A B", first(2, kept(rowsOf(9, nil), func(i int) bool { return i%2 == 1 })), row)
	is.NoErr(err)
	is.Equal(n, 2)
	is.Equal(out.String(), "1\n3\n")
	out.Reset()
	n, err = printRows(&out, form{}, "A B", rowsOf(0, nil), row)
	is.NoErr(err)
	is.Equal(n, 0)
	is.Equal(out.String(), "")
}

// A recurring task that should have started is late, not due now.
func TestNextMoment(t *testing.T) {
	is := is.New(t)
	is.Equal(nextMoment(time.Time{}), "-")
	for ago, want := range map[time.Duration]string{0: "now", 30*time.Second + time.Millisecond: "30s late", 2*time.Minute + time.Millisecond: "2m late", 73*time.Hour + time.Second: "3d1h late"} {
		is.Equal(nextMoment(time.Now().Add(-ago)), want)
	}
	is.True(strings.HasPrefix(nextMoment(time.Now().Add(time.Hour)), "in "))
}

// A finding that a command can fix or show includes that command.
func TestFixes(t *testing.T) {
	is := is.New(t)
	for kind := range fixes {
		is.True(slices.Contains(worqr.FindingKinds(), kind))
	}
	for _, c := range []struct {
		t    target
		f    inspect.Finding
		want string
	}{
		{target{Prefix: "worqr"}, inspect.Finding{Kind: "failed", Queue: "emails (failed)"}, "worqr failed emails"},
		{target{Prefix: "p"}, inspect.Finding{Kind: "paused", Queue: "a'b"}, `worqr resume --prefix p 'a'\''b'`},
		{target{Prefix: "p"}, inspect.Finding{Kind: "no-worker", Queue: "q"}, ""}, // if pasted, it would give the tasks to any program
		{target{Prefix: "worqr"}, inspect.Finding{Kind: "paused", Queue: "\u202e"}, "worqr resume QUEUE"},
		{target{Prefix: "worqr"}, inspect.Finding{Kind: "paused", Queue: "-f"}, "worqr resume -- '-f'"},
		{target{Prefix: "worqr", Lease: period(time.Second)}, inspect.Finding{Kind: "orphan"}, "worqr check --repair --lease 1s"},
		{target{Prefix: "worqr"}, inspect.Finding{Kind: "orphan", Repaired: true}, ""},
		{target{Prefix: "worqr"}, inspect.Finding{Kind: "clock"}, "worqr workers"},
		{target{Prefix: "p"}, inspect.Finding{Kind: "persistence"}, ""}, // the fix depends on the current settings; the text has it
	} {
		is.Equal(c.t.fixOf(c.f), c.want)
	}
	is.Equal((&target{Prefix: "p"}).adviceFor(inspect.Line{Finding: inspect.Finding{Kind: "no-worker", Queue: "q"}, Queues: []string{"q"}}), "start the service that handles it (`worqr work --prefix p q -- PROGRAM` if that's a program)")
}
