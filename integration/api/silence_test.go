package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// A silence is for all peers, until its end: the finding comes last, and doesn't count.
func TestSilence(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	enqueue(t, doctor.Queue("a"), "x")
	enqueue(t, doctor.Queue("b"), "x")
	silence := inspect.Silence{Kind: "no-worker", Queue: "a", Reason: "moving it", By: "ann", Until: time.Now().Add(time.Hour)}
	is.NoErr(open(t, worqr.Options{Prefix: prefix}).Silence(t.Context(), silence))
	found := func() (loud, silenced []string) {
		t.Helper()
		for _, f := range about(sure(doctor.Check(t.Context(), nil))(t), "no-worker") {
			if f.Silenced == nil {
				loud = append(loud, f.Queue)
			} else {
				silenced = append(silenced, f.Queue+" by "+f.Silenced.By+": "+f.Silenced.Reason)
			}
		}
		return loud, silenced
	}
	loud, silenced := found()
	is.Equal(loud, []string{"b"})
	is.Equal(silenced, []string{"a by ann: moving it"})
	text := sure(doctor.Check(t.Context(), nil))(t).String()
	is.True(strings.Contains(text, "stopped (no-worker, silenced) on a: "))
	is.True(strings.Contains(text, "UTC: moving it. Key: "))
	_, all, err := doctor.Notes(t.Context())
	is.NoErr(err)
	is.Equal(len(all), 1)
	is.True(time.Since(all[0].Since) < time.Minute)

	is.NoErr(doctor.Silence(t.Context(), inspect.Silence{Kind: "no-worker", Reason: "all", Until: time.Now().Add(time.Hour)}))
	loud, silenced = found()
	is.Equal(len(loud), 0)
	is.Equal(len(silenced), 2)
	is.True(sure(doctor.Unsilence(t.Context(), "no-worker", ""))(t))
	is.True(!sure(doctor.Unsilence(t.Context(), "no-worker", ""))(t))
	silence.Until = time.Now().Add(300 * time.Millisecond)
	is.NoErr(doctor.Silence(t.Context(), silence)) // it replaces the other
	eventually(t, "the silence ends", func() bool {
		loud, _ := found()
		return len(loud) == 2
	})

	for name, s := range map[string]inspect.Silence{
		"no reason": {Kind: "paused", Until: time.Now().Add(time.Hour)}, "no end": {Kind: "paused", Reason: "x"}, "past": {Kind: "paused", Reason: "x", Until: time.Now().Add(-time.Hour)},
		"too long": {Kind: "paused", Reason: "x", Until: time.Now().Add(31 * 24 * time.Hour)}, "long reason": {Kind: "paused", Reason: strings.Repeat("x", 201), Until: time.Now().Add(time.Hour)},
		"kind": {Kind: "pause", Reason: "x", Until: time.Now().Add(time.Hour)}, "queue": {Kind: "paused", Queue: "a b", Reason: "x", Until: time.Now().Add(time.Hour)},
	} {
		if err := doctor.Silence(t.Context(), s); !errors.Is(err, worqr.ErrInvalid) && !errors.Is(err, worqr.ErrBadName) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range 100 {
		is.NoErr(doctor.Silence(t.Context(), inspect.Silence{Kind: "paused", Queue: fmt.Sprint("q", i), Reason: "x", Until: time.Now().Add(time.Hour)}))
	}
	err = doctor.Silence(t.Context(), inspect.Silence{Kind: "failed", Reason: "x", Until: time.Now().Add(time.Hour)})
	is.True(errors.Is(err, worqr.ErrInvalid) && strings.Contains(err.Error(), "too many silences"))
	conn := redistest.Conn(t)
	is.True(redistest.Do(t, conn, "PTTL", prefix+":notes").(int64) > 0)
	redistest.Do(t, conn, "HSET", prefix+":notes", "s x ", strings.Repeat("x", 5000), "other", "x", "h evicted  w", "[]") // another program's
	_, all, err = doctor.Notes(t.Context())
	is.NoErr(err)
	is.Equal(len(all), 100)
}

// If the notes can't be read, silences don't count, and a finding says so.
func TestUnreadableNotes(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	enqueue(t, doctor.Queue("q"), "x")
	is.NoErr(doctor.Silence(t.Context(), inspect.Silence{Kind: "no-worker", Reason: "known", Until: time.Now().Add(time.Hour)}))
	is.True(about(sure(doctor.Check(t.Context(), nil))(t), "no-worker")[0].Silenced != nil)
	for i := range 1000 {
		is.NoErr(conn.Send("HSET", prefix+":notes", i, "x")) // another program's
	}
	redistest.Do(t, conn, "")
	report := sure(doctor.Check(t.Context(), nil))(t)
	is.True(about(report, "no-worker")[0].Silenced == nil)
	f := about(report, "unreadable")[0]
	is.Equal([]any{f.Severity, f.Title}, []any{inspect.SeverityRisk, "The notes can't be read"})
	is.True(strings.Contains(f.Text, "1001 fields") && strings.Contains(f.Text, "Silences don't count"))

	redistest.Do(t, conn, "DEL", prefix+":notes")
	redistest.Do(t, conn, "SET", prefix+":notes", "x")
	_, _, err := doctor.Notes(t.Context())
	is.True(err != nil)
	report = sure(doctor.Check(t.Context(), nil))(t)
	is.Equal(len(about(report, "unreadable")), 0)
	is.Equal(about(report, "wrong-type")[0].Key, prefix+":notes")
}

// What died and what was dropped is known to all for a day.
func TestNotes(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 150 * time.Millisecond})
	dead := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour, Name: "api-7"})
	working(t, dead, "q")
	id := dead.WorkerID() // it comes back under another one
	sure(doctor.FailWorker(t.Context(), id))(t)
	var f inspect.Finding
	eventually(t, "the note is written", func() bool {
		all := about(sure(doctor.Check(t.Context(), nil))(t), "evicted")
		if len(all) == 1 {
			f = all[0]
		}
		return len(all) == 1
	})
	is.Equal(f.Severity, inspect.SeverityNotice)
	is.True(strings.Contains(f.Text, "1 worker died, hung or lost its connection to Redis") && strings.Contains(f.Text, id))
}
