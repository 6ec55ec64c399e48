package spec

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m.Run)) }

// scripts is the directory of the package whose tables run here.
const scripts = "../../internal/store"

// A verdict is the result of one test of the tables.
type verdict struct {
	name   string
	result string // PASS, FAIL or SKIP
}

var said = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+) \(`)

// tables runs the tests of package store against a server. It returns the results
// of those without subtests, and the output.
func tables(t *testing.T, url string) (leaves []verdict, out string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tables")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, ".")
	build.Dir = scripts
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), binary, "-test.v", "-test.timeout=5m")
	run.Dir, run.WaitDelay = scripts, time.Second
	// PATH is empty, so that the tests start no Redis of their own.
	run.Env = append(os.Environ(), "PATH=", redistest.Env+"="+url, redistest.ACLEnv+"=0")
	text, err := run.CombinedOutput()
	out = string(text)
	failed := false
	var all []verdict
	for _, m := range said.FindAllStringSubmatch(out, -1) {
		all = append(all, verdict{m[2], m[1]})
		failed = failed || m[1] == "FAIL"
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
	if err != nil && !ended || strings.Contains(out, "\npanic: ") || failed != (ended && exit.ExitCode() == 1) {
		t.Fatalf("the tables did not finish: %v\n%s", err, out[max(0, len(out)-4000):])
	}
	parents := map[string]bool{}
	for _, v := range all {
		for i, c := range v.name {
			if c == '/' {
				parents[v.name[:i]] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(v verdict) bool { return parents[v.name] }), out
}

// alone are the tests that start, stop or fill a Redis of their own. They don't
// apply to other servers.
var alone = []string{"TestFull", "TestRegister", "TestRiskyBytes", "TestPlainCost", "TestFailCost", "TestHeldIsSkipList", "TestManyDie", "TestCancelAtScale", "TestCancelReadsOnce", "TestBatchPages", "TestNothingIsToldToNobody", "TestManyQueueNames", "TestRelist", "TestForgottenDuringBatch", "TestTrimOfManyFailures", "TestFailedPagesAreBoundedInBytes", "TestGuardSlotOnItsWay", "TestStalledRedirect", "TestAddedPages", "TestPutByHand"}

// judge compares the results of the tables on a server with the known differences.
func judge(t *testing.T, leaves []verdict, out string, known []difference) {
	t.Helper()
	seen := map[string]int{} // by result
	failed := make([]int, len(known))
	for _, v := range leaves {
		seen[v.result]++
		if v.result == "SKIP" && !slices.Contains(alone, v.name) {
			t.Errorf("%s was skipped", v.name)
		}
		i := slices.IndexFunc(known, func(d difference) bool { return d.tests.MatchString(v.name) })
		switch {
		case i < 0 && v.result == "FAIL":
			t.Errorf("%s fails. To reproduce it: go test ./integration/spec -run %q -v\n%s", v.name, t.Name(), about(out, v.name))
		case i >= 0 && v.result == "PASS":
			t.Errorf("%s passes, although %s: fix the table", v.name, known[i].what)
		case i >= 0:
			failed[i]++
		}
	}
	for i, d := range known {
		if failed[i] == 0 {
			t.Errorf("no test fails because %s: fix the table", d.what)
		}
	}
	if seen["PASS"] < 2000 {
		t.Errorf("only %d tests of the tables ran", seen["PASS"])
	}
	t.Logf("%d pass, %d fail as expected, %d need a Redis of their own", seen["PASS"], seen["FAIL"], seen["SKIP"])
}

// about returns the output of one test: the lines that follow its name.
func about(out, name string) string {
	var b strings.Builder
	its := false
	for line := range strings.Lines(out) {
		if mark := strings.Fields(line); len(mark) == 3 && mark[0] == "===" {
			its = mark[2] == name
		} else if its && !said.MatchString(line) {
			b.WriteString(line)
		}
	}
	return b.String()[:min(b.Len(), 2000)]
}
