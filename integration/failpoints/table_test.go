package failpoints_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// README.md has a table of the expected results, and describes this test.
func TestTable(t *testing.T) {
	text := redistest.Sure(os.ReadFile("README.md"))(t)
	const begin, end = "<!-- the tables begin -->\n", "<!-- the tables end -->\n"
	head, rest, ok := bytes.Cut(text, []byte(begin))
	old, tail, also := bytes.Cut(rest, []byte(end))
	if !ok || !also {
		t.Fatal("README.md does not say where the tables are")
	}
	now := tables()
	t.Log("\n" + now)
	switch {
	case string(old) == now:
	case *update:
		peertest.Must(t, os.WriteFile("README.md", slices.Concat(head, []byte(begin), []byte(now), []byte(end), tail), 0o644))
	default:
		t.Error("README.md has another table; to write this one: go test ./integration/failpoints -run TestTable -update")
	}
}

// spared are the verbs without a scenario, and why.
var spared = map[string]string{
	"check": "repairs are made again and again while workers die: repair_test.go there", "explain": "it only reads",
	"unlist": "it looks and removes in one step", "delist": "as unlist",
	"recur": "each beat repeats it: integration/recurring kills peers",
	"agree": "a peer looks at the numbers before each try, and it only raises them",
}

// Each verb has a scenario, or a reason not to.
func TestVerbs(t *testing.T) {
	wired := map[string]bool{}
	for _, s := range scenarios() {
		name, _, _ := strings.Cut(s.wire, ":")
		wired[name] = true
	}
	for _, v := range store.Verbs() {
		if wired[v.Name] == (spared[v.Name] != "") {
			t.Errorf("%s has a scenario: %t; a reason to have none: %q", v.Name, wired[v.Name], spared[v.Name])
		}
	}
}

// tables returns one table per fault, with a row for each kind of call.
func tables() string {
	var b strings.Builder
	for _, of := range []struct {
		title, text string
		faults      []fault
	}{
		{"Killed", "The process is killed. A call that was *sent* arrives once other peers have its tasks.", []fault{kill}},
		{"Stopped", "The process is stopped until other peers have its tasks, and then continues. A call that was *sent* arrives in between. The reply to a call that was *executed* comes too late for its connection; the reply to one that was *received* is still processed.", []fault{pause}},
		{"Evicted", "The process is alive, and another peer calls `FailWorker` on it. A call that was *sent* arrives after that. The reply to a call that was *executed* is lost.", []fault{evict}},
		{"Cut off", "The connection is cut. *Twice*: the connection for the repeated call is cut, too. *Late*: the request arrives once the peer holds another task.", []fault{lost, twice, late}},
		{"Repeated", "A copy of the request arrives on another connection: before the peer has processed the *reply*, after one more round (*next*), once it holds another task (*later*), after it has *left*, or after it was evicted (*failed*).", []fault{again}},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| call |", of.title, of.text)
		var columns []cell
		for _, c := range cells {
			if slices.Contains(of.faults, c.fault) {
				columns = append(columns, c)
				name := string(c.place)
				switch c.fault {
				case late:
					name = "late"
				case twice:
					name += " twice"
				}
				fmt.Fprintf(&b, " %s |", name)
			}
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
		for _, row := range rows(columns) {
			b.WriteString(row)
		}
	}
	b.WriteString("\n### Handlers\n\n| name | when the fault comes | the call that is held |\n|---|---|---|\n")
	for _, h := range handlings {
		call := "none"
		if h.wire != "" {
			call = "`" + h.wire + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", h.name, h.when, call)
	}
	b.WriteString("\n")
	return b.String()
}

// rows returns the rows of one table. Calls with the same results share one.
func rows(columns []cell) (all []string) {
	names := map[string][]string{}
	var order []string
	for _, s := range scenarios() {
		row, any := "", false
		for _, c := range columns {
			row += " " + s.says(c) + " |"
			any = any || s.applies(c)
		}
		if any && names[row] == nil {
			order = append(order, row)
		}
		names[row] = append(names[row], s.name)
	}
	for _, row := range order {
		all = append(all, "| "+strings.Join(names[row], ", ")+" |"+row+"\n")
	}
	return all
}

// says returns the expected result of a cell, in a few words.
func (s *scenario) says(c cell) string {
	if !s.applies(c) {
		return ""
	}
	p := s.promised(c)
	effect := []string{"not", "once", "twice"}[p.effect]
	switch {
	case c.fault == late && len(s.late) > 0:
		effect += ", then once"
	case c.fault == again && (c.place == goneOn || c.place == left) && len(s.again) > 0:
		effect = "twice"
	}
	if p.result == "" || s.silent {
		return effect
	}
	if effect += ": " + p.result; p.or != "" {
		effect += ", or " + p.or
	}
	return strings.ReplaceAll(effect, "lost evicted", "lost")
}
