package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/cmd/worqr/internal/top"
	"github.com/worqr/worqr/inspect"
)

type checkCommand struct {
	target
	form
	Repair      bool          `help:"Repair what can be repaired without losing a task. Needs --lease: a worker that is silent for longer is evicted."`
	MaxRun      time.Duration `help:"Report tasks that have run for longer; the default is 1h."`
	MaxAge      time.Duration `help:"Report tasks that have been due for longer, and queues whose waiting tasks haven't started for longer; the default is 10m."`
	MaxWaiting  *uint         `placeholder:"N" help:"Report queues with more due tasks than N; by default, there is no limit."`
	MaxRetrying *uint         `placeholder:"N" help:"Report queues in which more than N tasks wait for a retry; the default is 10."`
	MaxFailed   *uint         `placeholder:"N" help:"Report queues with more failed tasks than N; the default is 0."`
	Ignore      []string      `placeholder:"KIND" help:"Leave out findings of these kinds, such as persistence. May be repeated."`
}

func (c *checkCommand) options() *inspect.CheckOptions {
	o := &inspect.CheckOptions{MaxRunTime: c.MaxRun, MaxWaitTime: c.MaxAge, MaxBacklog: most(c.MaxWaiting), MaxRetrying: most(c.MaxRetrying), MaxFailed: most(c.MaxFailed)}
	for _, kind := range c.Ignore {
		o.Ignore = append(o.Ignore, inspect.FindingKind(kind))
	}
	return o
}

// most converts a limit for the library, where 0 means the default, and a negative limit means 0.
func most(limit *uint) int {
	switch {
	case limit == nil:
		return 0
	case *limit == 0:
		return -1
	}
	return int(min(*limit, math.MaxInt))
}

func (c *checkCommand) Validate() error {
	if c.Repair && c.Lease == 0 {
		return usage("--repair needs --lease, the lease of the fleet's peers: a worker that is silent for longer is evicted")
	}
	if c.MaxRun < 0 || c.MaxAge < 0 {
		return usage("neither --max-run nor --max-age may be negative")
	}
	for _, kind := range c.Ignore {
		if !slices.Contains(worqr.FindingKinds(), inspect.FindingKind(kind)) {
			return usage("the value of --ignore is not valid; the kinds are " + strings.Trim(fmt.Sprint(worqr.FindingKinds()), "[]"))
		}
	}
	return nil
}

func (c *checkCommand) Run(ctx context.Context, out io.Writer, f *fleet) error {
	examine := f.Check
	if c.Repair {
		examine = f.Repair
	}
	report, err := examine(ctx, c.options())
	if err != nil && (report == nil || len(report.Findings) == 0) {
		return err
	}
	if failed := c.print(out, report, err); failed != nil || err != nil {
		return errors.Join(err, failed)
	}
	harms := func(f inspect.Finding) bool { return f.Severity.Harms() }
	if report.Keys == 0 && !slices.ContainsFunc(report.Findings, harms) { // an alert that checks the wrong place must not report success
		return errors.New("nothing was checked: no worqr keys have this prefix")
	}
	return toldIf(!report.OK(), nil)
}

// A checkRow is a report.
type checkRow struct {
	OK       bool
	Queues   int
	Keys     int
	Omitted  int
	Findings []findingRow
	Error    string // why the repair isn't complete
}

// A findingRow is a finding, and the command that fixes it or shows more.
type findingRow struct {
	inspect.Finding
	Fix string
}

// print prints the report: in JSON all findings, and as text a line for each cause, with the command that fixes it or
// shows more.
func (c *checkCommand) print(out io.Writer, r *inspect.CheckReport, cut error) error {
	if c.JSON {
		row := checkRow{OK: r.OK() && r.Keys > 0 && cut == nil, Queues: r.Queues, Keys: r.Keys, Omitted: r.Omitted}
		if cut != nil {
			row.Error = cause(cut)
		}
		for _, f := range r.Findings {
			row.Findings = append(row.Findings, findingRow{f, c.fixOf(f)})
		}
		return printJSON(out, row)
	}
	var b strings.Builder
	b.WriteString(r.Summary())
	last := ""
	for _, l := range inspect.Fold(r.Findings) {
		b.WriteString(colored(out, l) + "\n")
		if advice := c.adviceFor(l); advice != "" && advice != last { // once if several have it
			b.WriteString("  " + advice + "\n")
			last = advice
		}
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "and %d more\n", r.Omitted)
	}
	_, err := fmt.Fprint(out, b.String())
	return err
}

// colored returns a line whose severity has its color, on a terminal: red for harm, amber for a risk, gray for the rest.
func colored(out io.Writer, l inspect.Line) string {
	text, severity := l.String(), string(l.Severity)
	if !isTerminal(out) || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return top.Style(l).Render(severity) + strings.TrimPrefix(text, severity)
}
