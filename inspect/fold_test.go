package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
)

func TestSeverity(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	all := inspect.Severities()
	for i, s := range all {
		is.Equal(s.Compare(s), 0)
		is.Equal(s.Harms(), i < 3)
		for _, worse := range all[:i] {
			is.True(worse.Compare(s) < 0 && s.Compare(worse) > 0)
		}
	}
}

// Findings with one cause are one line, with the largest queue first and the numbers added up. A larger cause hides what
// follows from it. Those that are silenced come last, and hide nothing.
func TestFold(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	silence := &inspect.Silence{By: "ann", Reason: "known", Until: time.Unix(0, 0)}
	of := func(kind inspect.FindingKind, s inspect.Severity, queue string, n int) inspect.Finding {
		return inspect.Finding{Kind: kind, Severity: s, Queue: queue, Count: n, Text: "Text.", Key: "key", Detail: fmt.Sprintf("There are %d.", n)}
	}
	all := []inspect.Finding{
		of("persistence", inspect.SeverityRisk, "", 0),
		of("expired-worker", inspect.SeverityStuck, "orders", 1),
		of("expired-worker", inspect.SeverityStuck, "other", 1),
		of("no-worker", inspect.SeverityStopped, "emails", 2),
		of("no-worker", inspect.SeverityStopped, "orders", 40),
		of("no-worker", inspect.SeverityStopped, "images", 3),
		of("overdue", inspect.SeverityStuck, "orders", 40),
		of("failed", inspect.SeverityNotice, "orders (failed)", 1),
		of("failing", inspect.SeverityStuck, "orders", 1),
		of("full", inspect.SeverityLost, "", 0),
		of("memory", inspect.SeverityRisk, "", 0),
		{Kind: "paused", Severity: inspect.SeverityStopped, Queue: "p", Silenced: silence},
		of("overdue", inspect.SeverityStuck, "p", 7),
		{Kind: "outbox", Severity: inspect.SeverityRisk, Text: "A."}, {Kind: "outbox", Severity: inspect.SeverityRisk, Text: "B."}, {Kind: "outbox", Severity: inspect.SeverityRisk, Text: "B."},
	}
	var said []string
	lines := inspect.Fold(all)
	for _, l := range lines {
		said = append(said, l.String())
	}
	is.Equal(strings.Join(said, "\n"), `lost (full): Text. Key: "key".
stopped (no-worker) on orders and 2 more queues: 45 tasks are waiting, and no worker serves these queues. On orders: There are 40. Start the service that handles them.
stuck (expired-worker) on other: Text. Key: "key".
stuck (failing) on orders: Text. Key: "key".
stuck (overdue) on p: Text. Key: "key".
risk (persistence): Text. Key: "key".
risk (outbox): A.
risk (outbox): B.
stopped (paused, silenced) on p:  Silenced by ann until 1970-01-01 00:00:00 UTC: known.`)
	is.Equal(lines[1].Queues, []string{"orders", "images", "emails"})
	is.Equal(lines[1].Count, 45)
	is.Equal(lines[1].On(2), "orders, images and 1 more queue")
	is.Equal(lines[7].Findings, 2)

	r := inspect.CheckReport{Keys: 1, Queues: 1, Findings: all[11:12]}
	is.True(r.OK())
	is.Equal(r.Summary(), "Checked 1 key in 1 queue: nothing is wrong, 1 silenced\n")
	r.Findings = all
	is.True(!r.OK())
	is.Equal(r.Summary(), "Checked 1 key in 1 queue: 1 lost, 1 stopped, 3 stuck, 3 risks, 1 silenced\n")
}

// What is usual is the median of the hours that are recorded, if there are enough.
func TestUsual(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var hours []inspect.Period
	is.Equal(inspect.UsualOf(hours), inspect.Usual{})
	for i := range 7 {
		p := inspect.Period{Recorded: true, Failed: int64(60 * i * i)}
		p.Ran[4] = 20
		hours = append(hours, p, inspect.Period{})
	}
	u := inspect.UsualOf(hours)
	is.True(u.Known)
	is.Equal(u.Failed, 9.0)
	is.True(u.RunTime > time.Second && u.RunTime < 3*time.Second)
	is.True(!inspect.UsualOf(hours[:8]).Known)
}
