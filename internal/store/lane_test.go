package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// h returns a hash with these fields, in any order; a field given again replaces the first.
func h(fields ...string) string {
	all := map[string]string{}
	for _, f := range fields {
		for f = strings.Trim(f, "{}"); f != ""; {
			one := f
			if end := strings.IndexAny(f, " \""); end >= 0 && f[end] == '"' { // up to the closing quote
				one = f[:end+2+strings.IndexByte(f[end+1:], '"')]
			} else if end >= 0 {
				one = f[:end]
			}
			name, _, _ := strings.Cut(one, "=")
			all[name] = one
			f = strings.TrimLeft(f[len(one):], " ")
		}
	}
	return "{" + strings.Join(slices.Sorted(maps.Values(all)), " ") + "}"
}

func waits(payload, due string, retries, crashes int) string {
	return h("payload="+payload, "due="+due, fmt.Sprint("retries=", retries), fmt.Sprint("crashes=", crashes))
}

// A waiting is an entry in the schedule.
type waiting struct {
	entry, payload, due string
	crashes             int
}

// waiting returns a state with only these entries in the schedule.
func (s state) waiting(all ...waiting) state {
	s = s.with()
	var schedule, contents []string
	for _, w := range all {
		schedule = append(schedule, w.entry+"="+w.due)
		contents = append(contents, name(digest(w.payload)+":"+w.entry)+"=0")
		s["keyed:"+w.entry] = waits(w.payload, w.due, 0, w.crashes)
	}
	slices.Sort(contents)
	s["schedule"], s["contents"] = "("+strings.Join(schedule, " ")+")", "("+strings.Join(contents, " ")+")"
	return s
}

// holding returns a state in which a worker holds tasks, as p1, p2 and so on.
func (s state) holding(worker string, tasks ...string) state {
	s = s.with()
	for i, task := range tasks {
		s[fmt.Sprint("process:p", i+1)] = "[" + task + "]"
	}
	held := series(len(tasks), func(i int) string { return fmt.Sprintf("p%d=%d", i+1, i+1) })
	return s.with("working:"+worker, "("+strings.Join(held, " ")+")")
}

func runs(process string, tried, died int) string {
	return h("process="+process, fmt.Sprint("tried=", tried), fmt.Sprint("died=", died))
}

// rule returns the fields that say how a blocked put changes the running task if that comes back.
func rule(keep, counts int, low, high string) string {
	return h(fmt.Sprint("keep=", keep), fmt.Sprint("counts=", counts), "low="+low, "high="+high)
}

// ends makes a round with one outcome.
func ends(n int64, id string, token int64, v Ending, o Outcome) func(*env) string {
	o.Process, o.Token, o.Verb = id, token, v
	return steps(Round{Worker: "w1", Number: n, Outcomes: []*Outcome{&o}})
}

// inTurn makes calls one after another.
func inTurn(calls ...func(*env) string) func(*env) string {
	return func(e *env) string {
		answers := make([]string, len(calls))
		for i, call := range calls {
			answers[i] = call(e)
		}
		return strings.Join(answers, "; ")
	}
}

func begins(n int64, ids ...string) func(*env) string {
	return steps(Round{Worker: "w1", Number: n, Start: ids})
}

var (
	member = state{"workers": "(w1=+60m)"}
	// keyX waits under x, and is due.
	keyX = member.with("schedule", "(k:x=-1m)", "contents", "(#a:k:x=0)", "keyed:k:x", waits("a", "-1m", 2, 1))
	// runX runs under x.
	runX = member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]",
		"entries", "{p1=k:x}", "keyed:k:x", runs("p1", 2, 1))
	// doneX is runX after its task has ended.
	doneX = member.with("rounds", "{w1=2}", "token", "=1")
	// backX is doneX with the task waiting again. Tests add its schedule and hash.
	backX = doneX.with("contents", "(#a:k:x=0)")
	// blockedX is runX with b blocked by it.
	blockedX = runX.with("contents", "(#b:k:x=0)", "keyed:k:x", h(runs("p1", 2, 1), waits("b", "+20m", 0, 0), rule(0, 0, "+20m", "+20m")))
	// rawP has a raw task that runs.
	rawP = member.with("rounds", "{w1=1}", "token", "=1", "working:w1", "(p1=1)", "process:p1", "[a]")
	// retryR is rawP while its task waits for a retry.
	retryR = doneX.with("schedule", "(r:p1=+60m)", "contents", "(#a:r:p1=0)", "keyed:r:p1", waits("a", "+60m", 1, 0))
)
