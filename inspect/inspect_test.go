package inspect_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
)

func TestCheckReport(t *testing.T) {
	t.Parallel()
	broken := inspect.Finding{Kind: "orphan", Severity: inspect.SeverityStuck, Queue: "q", Key: "k\n", Subject: "s", Text: "Bad."}
	mended := broken
	mended.Repaired = true
	for name, test := range map[string]struct {
		report inspect.CheckReport
		ok     bool
		says   string
	}{
		"nothing there": {inspect.CheckReport{Prefix: "p"}, true, "Checked 0 keys in 0 queues: nothing is wrong\n" +
			"no worqr keys found under the prefix \"p\"; check the prefix and the Redis URL\n"},
		"no queues": {inspect.CheckReport{Prefix: "p", Keys: 1}, true, "Checked 1 key in 0 queues: nothing is wrong\n" +
			"no queues found under the prefix \"p\"; check the prefix and the Redis URL\n"},
		"broken": {inspect.CheckReport{Keys: 2, Queues: 1, Findings: []inspect.Finding{broken}}, false,
			"Checked 2 keys in 1 queue: 1 stuck\nstuck (orphan) on q: Bad. Key: \"k\\n\". Subject: \"s\".\n"},
		"repaired": {inspect.CheckReport{Keys: 2, Queues: 1, Repair: true, Findings: []inspect.Finding{mended}}, true,
			"Checked 2 keys in 1 queue: nothing is wrong, 1 repaired\nstuck (orphan, repaired) on q: Bad. Key: \"k\\n\". Subject: \"s\".\n"},
		"harm was omitted": {inspect.CheckReport{Keys: 2, Queues: 1, Omitted: 4, Unwell: true}, false,
			"Checked 2 keys in 1 queue: nothing is wrong\nand 4 more\n"},
	} {
		is := is.New(t)
		t.Log(name)
		is.Equal(test.report.OK(), test.ok)
		is.Equal(test.report.String(), test.says)
	}
}

func ended(outcome string, due time.Time) []inspect.RecurringEnd {
	return []inspect.RecurringEnd{{Outcome: outcome, DueAt: due}}
}

func TestRecursSentence(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const clock = "2026-01-02 03:04:05.000 UTC"
	for _, test := range []struct {
		recurs inspect.RecurringTask
		says   string
	}{
		{inspect.RecurringTask{Next: at, Asserted: true}, "It recurs on \"q\". The next time is " + clock + "."},
		{inspect.RecurringTask{Current: at, Asserted: true}, "It recurs on \"q\"; the occurrence of " + clock + " hasn't ended. No next run is planned."},
		{inspect.RecurringTask{Next: at, Ends: ended("failed", at)}, "It recurs on \"q\"; the last occurrence, due " + clock + ", failed. The next time is " + clock +
			". No live peer has its schedule, so it's withheld; start a peer that calls Every for it."},
		{inspect.RecurringTask{Next: at, Ends: ended("finished", time.Time{}), Asserted: true}, "It recurs on \"q\"; the last run wasn't scheduled, and finished. The next time is " + clock + "."},
		{inspect.RecurringTask{Next: at, Ends: ended("skipped", at), Asserted: true}, "It recurs on \"q\"; the last occurrence, due " + clock + ", was skipped. The next time is " + clock + "."},
	} {
		is.New(t).Equal((&inspect.Explanation{Queue: "q", Recurs: &test.recurs}).String(), test.says)
	}
}

// Rows can be printed and logged, and show neither payload nor key nor headers.
func TestRowsAreDiscreet(t *testing.T) {
	t.Parallel()
	const canary = "canary"
	payload, headers := []byte(canary), map[string]string{canary: canary}
	var text strings.Builder
	log, structured := slog.New(slog.NewTextHandler(&text, nil)), slog.New(slog.NewJSONHandler(&text, nil))
	for _, row := range []any{
		inspect.NamedTask{Key: canary, Payload: payload, Headers: headers},
		inspect.RunningTask{Key: canary, Payload: payload, Headers: headers}, inspect.FailedTask{Key: canary, Payload: payload, Headers: headers},
		inspect.Event{Payload: payload, Result: payload}, inspect.RecurringTask{Key: canary}, inspect.TaskCopy{Key: canary},
		inspect.Explanation{Queue: "q", Copies: []inspect.TaskCopy{{Key: canary, State: inspect.CopyWaiting}}, Recurs: &inspect.RecurringTask{Key: canary}},
		&inspect.Explanation{Queue: "q", Copies: []inspect.TaskCopy{{Key: canary, State: inspect.CopyWaiting}}},
	} {
		log.Info("row", "row", row)
		structured.Info("row", "row", row)
		said := fmt.Sprintf("%v %+v %#v %s %x %d", row, row, row, row, row, row) + text.String()
		if strings.Contains(said, canary) || strings.Contains(said, "99 97 110") || strings.Contains(said, "63616e617279") || len(said) < 100 {
			t.Errorf("%T: %s", row, said)
		}
		text.Reset()
	}
}

// Texts with a count fit one thing, too.
func TestOne(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.True(strings.HasSuffix((&inspect.Explanation{Queue: "q", NotSearched: 1}).String(), "It may be further back: 1 task wasn't searched."))
	is.True(strings.HasSuffix((&inspect.Explanation{Queue: "q", NotSearched: 2}).String(), "It may be further back: 2 tasks weren't searched."))
}
