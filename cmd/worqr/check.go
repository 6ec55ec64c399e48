package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
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
	if report.Keys == 0 && report.OK() { // an alert that checks the wrong place must not report success
		return errors.New("nothing was checked: no worqr keys have this prefix")
	}
	return toldIf(!isWell(report), nil)
}

// isWell reports whether there is no error and no warning.
func isWell(r *inspect.CheckReport) bool {
	endangered := func(f inspect.Finding) bool { return f.Severity == inspect.SeverityWarning && !f.Repaired }
	return r.OK() && r.Omitted == 0 && !slices.ContainsFunc(r.Findings, endangered)
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

// print prints the report, and after each finding the command that fixes it or shows more.
func (c *checkCommand) print(out io.Writer, r *inspect.CheckReport, cut error) error {
	row := checkRow{OK: isWell(r) && r.Keys > 0 && cut == nil, Queues: r.Queues, Keys: r.Keys, Omitted: r.Omitted}
	text := r.String()
	if cut != nil {
		row.Error = cause(cut)
	}
	var b strings.Builder
	last := ""
	for _, f := range r.Findings {
		fix := c.fixOf(f)
		row.Findings = append(row.Findings, findingRow{f, fix})
		advice := c.adviceFor(f, fix)
		if before, after, ok := strings.Cut(text, f.String()+"\n"); ok && advice != "" && advice != last { // once if several have it
			b.WriteString(before + f.String() + "\n  " + advice + "\n")
			text, last = after, advice
		}
	}
	if c.JSON {
		return printJSON(out, row)
	}
	_, err := fmt.Fprint(out, b.String()+text)
	return err
}
