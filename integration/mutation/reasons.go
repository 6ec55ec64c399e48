package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A mutant that no test can notice is excused by a mark at the end of its line of Lua,
//
//	if #scores > 0 then --! pair constant; look bound
//
// which names the reason and the classes. A number behind a class, as in operand.2, is for
// the one of these among those of the line. Redis doesn't get to see marks.
var reasons = map[string]string{
	"look":     "It only saves a look. Without it something is read that is not there, or that changes nothing.",
	"first":    "Only the first is read.",
	"one":      "Redis answers true with 1 as well.",
	"page":     "It is the size of a page. One more or less is as good; that there is a bound is tested.",
	"reset":    "It is set again before anybody reads it.",
	"pair":     "There are always two of them, or none: a name and its score.",
	"colon":    "A member that begins with the digest and a colon always goes on with an entry.",
	"follows":  "What follows does the same: the next command refuses, or needs no memory.",
	"above":    "Any number above 0 says that it is no suspect.",
	"between":  "No time and no token lies between: times are far above 1, and marks are 0 and -1.",
	"longer":   "A record may live a millisecond longer.",
	"below":    "Any number below 0 says that the queue was alone.",
	"lindex":   "LINDEX finds nothing there, or it is the first copy; the search that follows finds the same place.",
	"rounded":  "What is not above 0 is 0 either way, and what is below 1 is rounded to it.",
	"computed": "A digest that nobody names is computed, and is the same.",
	"empty":    "It only saves a table, which is as empty.",
	"liar":     "Two digests of one payload differ only where somebody has named a wrong one, which harms the own task.",
	"error":    "An error reply is a table with its text and nothing else, so it has no elements.",
	"epoch":    "Only if Redis believed it was 1970 would a score be the mark itself.",
	"stale":    "At the place of a lock stands its own payload, unless the lock is stale; no gap.",
	"leap":     "It is how far the search leaps. It ends at the same place.",
	"start":    "Each start has a token of its own.",
	"gap":      "A gap is called like its position.",
	"keyed":    "It is read for entries with a key only. All others ask the ledger.",
	"called":   "No cancel is called like an entry that is no key.",
	"token":    "A cancel has a token of its own, which no start has.",
	"lost":     "The lock of an empty payload goes, too, when Redis has lost the process: it would be stale.",
	"unread":   "Anything but false stands for what is not read.",
	"batch":    "A list of those at once and a list of one at a time come to the same.",
	"lease":    "No lease is as short as a millisecond.",
	"grave":    "Nothing is put under the name of a failed task, so none waits and runs.",
	"left":     "What is there and ends has a millisecond left, and more.",
	"passed":   "Where nothing was passed over nobody asks for it.",
	"unheard":  "Where nobody listens, nobody can tell what was said.",
	"encoded":  "What a worker has encoded has its length and its digest in front.",
	"reply":    "ReadStep makes the same of both.",
	"length":   "It is 0, or the length of a payload that is far above 1.",
	"cost":     "A cost is as it was measured. One more or less is as good; that each counts is tested.",
	"ids":      "What was started in a round are its first ids, so nothing follows one that was not.",
	"long":     "It goes at once, and only has to be too long for a list.",
	"twice":    "The same is written once more.",
	"denied":   "It is refused only to a user without the rule of who checks; then the payload is read.",
	"soon":     "What is to come is a millisecond away at least.",
}

var mark = regexp.MustCompile(` --! (.*)$`)

// An excuse is one class in a mark.
type excuse struct {
	file  string
	line  int
	class class
	nth   int // 0: all of them
	why   string
	used  bool
}

func (e *excuse) String() string {
	return fmt.Sprintf("%s:%d: %s %s.%d", e.file, e.line, e.why, e.class, e.nth)
}

// excuses reads the marks of a file.
func excuses(file, src string) (all []*excuse) {
	for i, line := range strings.Split(src, "\n") {
		m := mark.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for part := range strings.SplitSeq(m[1], "; ") {
			words := strings.Fields(part)
			for _, w := range words[1:] {
				name, nth, _ := strings.Cut(w, ".")
				n, _ := strconv.Atoi(nth) // none is 0
				all = append(all, &excuse{file: file, line: i + 1, class: class(name), nth: n, why: words[0]})
			}
		}
	}
	return all
}

// excuse gives the mutants of a file their reasons, and returns what excuses nothing.
func excused(file, src string, mutants []mutant) (wrong []string) {
	all := excuses(file, src)
	type of struct {
		line  int
		class class
	}
	seen := map[of]int{}
	for i := range mutants {
		m := &mutants[i]
		k := of{m.line, m.class}
		seen[k]++
		for _, e := range all {
			if e.line == m.line && e.class == m.class && (e.nth == 0 || e.nth == seen[k]) {
				if m.why != "" {
					wrong = append(wrong, e.String()+": it has a reason")
				}
				m.why, e.used = reasons[e.why], true
			}
		}
	}
	for _, e := range all {
		if !e.used || reasons[e.why] == "" {
			wrong = append(wrong, e.String()+": there is no such mutant, or reason")
		}
	}
	return wrong
}
