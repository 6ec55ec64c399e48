package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A report is the result of a run. Reports of arenas can be added up.
type report struct {
	Kills, Zombies, Stalls, Restarts, Replacements int
	Cuts                                           map[string]int // by kind

	Enqueued    int // acknowledged
	Doubtful    int // unknown outcome, or the producer died before reporting it
	Refused     int // enqueues that Redis or the link refused
	Finished    int
	Canceled    int
	Told        int // results returned by Wait
	Failed      int
	Lost        int
	Forgotten   int // lost with writes that Redis doesn't keep; each one is listed
	Reported    int // restarts that lost tasks, and a peer reported it
	Unreported  int // restarts that lost tasks, and no peer reported it
	Twice       int // finished twice
	Starts      int // of handlers
	Extra       int // starts of tasks whose worker was evicted
	InFlight    int // tasks held by workers when they were evicted
	FalseDeaths int
	Late        int // workers evicted while the machine didn't let them run
	Stale       int // finishes of tasks that had been returned
	Accepted    int // stale finishes that had an effect
	Orphans     int // keys
	Checks      int // runs of Check

	Recoveries []time.Duration // from a kill to each start of a held task
	Waits      []time.Duration // from an enqueue to the start
	Stops      []time.Duration // from a cancel to the end of the context

	Slowest    slowCall
	Violations []string
	Notes      []string
}

func (r *report) add(o *report) {
	for _, n := range []struct{ to, from *int }{
		{&r.Kills, &o.Kills}, {&r.Zombies, &o.Zombies}, {&r.Stalls, &o.Stalls}, {&r.Restarts, &o.Restarts}, {&r.Replacements, &o.Replacements},
		{&r.Enqueued, &o.Enqueued}, {&r.Doubtful, &o.Doubtful}, {&r.Refused, &o.Refused}, {&r.Finished, &o.Finished},
		{&r.Canceled, &o.Canceled}, {&r.Told, &o.Told}, {&r.Failed, &o.Failed}, {&r.Lost, &o.Lost}, {&r.Forgotten, &o.Forgotten}, {&r.Reported, &o.Reported},
		{&r.Unreported, &o.Unreported}, {&r.Twice, &o.Twice},
		{&r.Starts, &o.Starts}, {&r.Extra, &o.Extra}, {&r.InFlight, &o.InFlight}, {&r.FalseDeaths, &o.FalseDeaths}, {&r.Late, &o.Late},
		{&r.Stale, &o.Stale}, {&r.Accepted, &o.Accepted}, {&r.Orphans, &o.Orphans}, {&r.Checks, &o.Checks},
	} {
		*n.to += *n.from
	}
	for kind, n := range o.Cuts {
		r.cut(kind, n)
	}
	r.Recoveries = append(r.Recoveries, o.Recoveries...)
	r.Waits = append(r.Waits, o.Waits...)
	r.Stops = append(r.Stops, o.Stops...)
	if o.Slowest.took > r.Slowest.took {
		r.Slowest = o.Slowest
	}
	r.Violations = append(r.Violations, o.Violations...)
	r.Notes = append(r.Notes, o.Notes...)
}

func (r *report) cut(kind string, n int) {
	if r.Cuts == nil {
		r.Cuts = map[string]int{}
	}
	r.Cuts[kind] += n
}

func (r *report) violate(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

// bound checks that a percentile of times is within a limit.
func (r *report) bound(what string, times []time.Duration, percent int, most time.Duration) {
	if at := percentile(times, percent); at > most {
		r.violate("%s: p%d is %v, more than %v", what, percent, round(at), most)
	}
}

// write prints the report for people.
func (r *report) write(w io.Writer) {
	cuts, kinds := 0, []string{}
	for kind, n := range r.Cuts {
		cuts += n
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(kinds)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // for people
	line("faults      kills %d, zombies %d, cuts %d, stalls %d, restarts %d, replacements %d",
		r.Kills, r.Zombies, cuts, r.Stalls, r.Restarts, r.Replacements)
	if cuts > 0 {
		line("            cuts: %s", strings.Join(kinds, ", "))
	}
	line("tasks       enqueued %d, doubtful %d, refused %d, finished %d, canceled %d, failed %d, results returned by Wait %d",
		r.Enqueued, r.Doubtful, r.Refused, r.Finished, r.Canceled, r.Failed, r.Told)
	line("            lost %d, finished twice %d, lost with Redis %d", r.Lost, r.Twice, r.Forgotten)
	if r.Forgotten > 0 {
		line("            restarts that lost tasks: %d reported by peers, %d not", r.Reported, r.Unreported)
	}
	line("starts      %d, extra %d of %d in flight, false deaths %d, evicted on a busy machine %d", r.Starts, r.Extra, r.InFlight, r.FalseDeaths, r.Late)
	line("stale ends  %d, accepted %d", r.Stale, r.Accepted)
	line("left over   orphan keys %d; the keyspace was checked %d times", r.Orphans, r.Checks)
	for _, t := range []struct {
		what  string
		times []time.Duration
	}{{"recovery  ", r.Recoveries}, {"wait      ", r.Waits}, {"cancel    ", r.Stops}} {
		if n := len(t.times); n > 0 {
			line("%s  p50 %v, p99 %v, max %v of %d", t.what, round(percentile(t.times, 50)), round(percentile(t.times, 99)),
				round(percentile(t.times, 100)), n)
		}
	}
	if r.Slowest.took > 0 {
		line("slowest     %v, script %s", r.Slowest.took, r.Slowest.call)
	} else {
		line("slowest     no script took 0.2 ms")
	}
	for _, told := range []struct {
		as    string
		lines []string
		most  int
	}{{"note      ", r.Notes, 10}, {"VIOLATION ", r.Violations, 40}} {
		for _, l := range told.lines[:min(len(told.lines), told.most)] {
			line("%s  %s", told.as, l)
		}
		if more := len(told.lines) - told.most; more > 0 {
			line("            and %d more", more)
		}
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// percentile returns the time that this percentage doesn't exceed.
func percentile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(times), cmp.Compare[time.Duration])
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}
