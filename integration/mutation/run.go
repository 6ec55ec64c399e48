package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/worqr/worqr/integration/mutation/mutant"
	"github.com/worqr/worqr/internal/redisserver"
)

// uneven tests depend on time, or take long, so their results don't count: a mutant must be found each time,
// even on a busy machine.
const uneven = "^(TestCancelAtScale|TestManyDie)$"

// A stand is where mutants are tried: it has the test binary of internal/store,
// and the places that its tests reach.
type stand struct {
	root    string // of the repository
	dir     string // for files
	binary  string
	scripts *mutant.Scripts

	idle time.Duration // how long a run without tests takes

	mu    sync.Mutex // protects the fields below
	tests map[string][]*test
	kills int
}

func newStand(ctx context.Context, root, dir string) (*stand, error) {
	s := &stand{root: root, dir: dir, binary: filepath.Join(dir, "store.test")}
	build := grouped(ctx, "go", "test", "-c", "-o", s.binary, "./internal/store")
	build.Dir, build.Env = root, append(os.Environ(), "TMPDIR="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	var err error
	s.scripts, err = mutant.Read(root)
	return s, err
}

// rehearse runs most tests on scripts with probes.
func (s *stand) rehearse(ctx context.Context, all []mutant.Mutant, without string) error {
	dir := filepath.Join(s.dir, "rehearsal")
	reached := filepath.Join(dir, "reached")
	if err := os.MkdirAll(reached, 0o755); err != nil {
		return err
	}
	places := map[string][]mutant.Place{}
	for _, m := range all {
		places[m.File] = append(places[m.File], m.Place)
	}
	for file, at := range places {
		if err := os.WriteFile(filepath.Join(dir, file+".lua"), []byte(probed(file, s.scripts.Files[file], at)), 0o644); err != nil {
			return err
		}
	}
	// The probes make a test that counts commands fail.
	skip := uneven
	if without != "" {
		skip += "|" + without
	}
	out, _ := s.run(ctx, dir, time.Minute, "-test.skip", skip)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var err error
	if s.tests, err = read(reached); err == nil && len(s.tests) == 0 {
		err = fmt.Errorf("the tests reach nothing:\n%s", out)
	}
	for file := range places { // a script that doesn't compile reaches nothing
		if err == nil && !slices.ContainsFunc(all, func(m mutant.Mutant) bool { return m.File == file && s.tests[in(m.Place, file)] != nil }) {
			err = fmt.Errorf("the tests reach nothing of %s:\n%s", file, out)
		}
	}
	if err != nil {
		return err
	}
	none := filepath.Join(s.dir, "none")
	if err := os.Mkdir(none, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(none, "tests"), nil, 0o644); err != nil {
		return err
	}
	begin := time.Now()
	out, err = s.run(ctx, none, time.Minute)
	if s.idle = time.Since(begin); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// run runs tests that are expected to take some time, in the directory that configures them. A limit of CPU
// time, in seconds, applies to them and to the server that they start: it ends even a run that never ends by
// itself.
func (s *stand) run(ctx context.Context, dir string, cost time.Duration, args ...string) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	limit := fmt.Sprintf(`ulimit -c 0; ulimit -t %d; exec "$@"`, 2+int(4*(s.idle+cost).Seconds()))
	cmd := grouped(ctx, "sh", append([]string{"-c", limit, "sh", s.binary, "-test.parallel", "1"}, args...)...)
	cmd.Dir = filepath.Join(s.root, "internal", "store")
	cmd.Env = append(os.Environ(), "WORQR_MUTATION="+dir, "TMPDIR="+dir, "WORQR_TEST_ACL=0", "GOGC=400") // probes publish
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err = cmd.Run()
	if cmd.Process != nil { // otherwise it didn't start
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return both.Bytes(), err
}

// grouped returns a command that ends together with all processes that it has started: with ctx, and with this
// process. For tests those are the servers.
func grouped(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = cmp.Or(redisserver.DieWithParent(), &syscall.SysProcAttr{})
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// remove removes a directory. A killed process may have just written there, so it retries.
func remove(dir string) {
	for range 3 {
		if os.RemoveAll(dir) == nil {
			return
		}
	}
}

// A fate is the result of a mutant.
type fate struct {
	killed  bool
	reached bool
	by      string        // the test
	after   time.Duration // of tests
}

// try tries a mutant: first with a few tests that reach it, then with more, as many as take at most the given
// time.
func (s *stand) try(ctx context.Context, m *mutant.Mutant, most time.Duration) (fate, error) {
	dir, err := os.MkdirTemp(s.dir, "mutant")
	if err != nil {
		return fate{}, err
	}
	defer remove(dir)
	if err := os.WriteFile(filepath.Join(dir, m.File+".lua"), []byte(m.Lua()), 0o644); err != nil {
		return fate{}, err
	}
	rest := s.order(m)
	f := fate{reached: len(rest) > 0}
	for page, total := 15*time.Millisecond, time.Duration(0); len(rest) > 0 && total < most; page *= 4 {
		some, cost := take(rest, min(page, most-total))
		rest, total = rest[len(some):], total+cost
		f.after = total
		var names, patterns []string
		for _, t := range some {
			names, patterns = append(names, t.name), append(patterns, t.pattern(len(some)))
		}
		slices.Sort(patterns)
		if err := os.WriteFile(filepath.Join(dir, "tests"), []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
			return f, err
		}
		these := []string{"-test.run", strings.Join(slices.Compact(patterns), "|")}
		out, err := s.run(ctx, dir, cost, these...)
		if ctx.Err() != nil {
			return f, ctx.Err()
		}
		if err == nil {
			continue
		}
		if f.killed, f.by = true, blame(string(out)); f.by == noEnd {
			err = s.control(ctx, dir, m, cost, these)
		} else {
			s.credit(m, some, f.by)
			err = nil
		}
		return f, err
	}
	return f, nil
}

// control runs the tests of an endless run on the unchanged script: they must end, unless the mutant wasn't the
// cause.
func (s *stand) control(ctx context.Context, dir string, m *mutant.Mutant, cost time.Duration, tests []string) error {
	if err := os.Remove(filepath.Join(dir, m.File+".lua")); err != nil {
		return err
	}
	if out, err := s.run(ctx, dir, cost, tests...); err != nil {
		return fmt.Errorf("without the change its tests fail, too: %w\n%s", err, out)
	}
	return nil
}

// noEnd is used instead of a failed test's name if there is none.
const noEnd = "no end"

// take returns the first tests that together take the given time, or at least one.
func take(tests []*test, most time.Duration) (some []*test, cost time.Duration) {
	for i, t := range tests {
		if i > 0 && cost+t.cost > most {
			return tests[:i], cost
		}
		cost += t.cost
	}
	return tests, cost
}

// blame returns the failed test, from the output of a run.
func blame(out string) string {
	for _, said := range []string{"FAILED ", "--- FAIL: "} {
		if _, name, ok := strings.Cut(out, said); ok {
			return strings.Fields(name)[0]
		}
	}
	return noEnd // or a panic
}

// order returns the tests that reach a mutant: first a few that were the last to find one, since neighboring
// mutants are found by the same tests, and the last to find one of its class; then one of each kind, then a
// second one, and so on; within a kind, those that have found most, and then the cheapest.
func (s *stand) order(m *mutant.Mutant) (all []*test) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = slices.Clone(s.tests[in(m.Place, m.File)])
	few := 0
	for _, of := range []mutant.Class{"", m.Class} {
		rest := all[few:]
		slices.SortStableFunc(rest, func(a, b *test) int { return b.last[of] - a.last[of] })
		for i := 0; i < min(len(rest), 4) && rest[i].last[of] > 0; i++ {
			few++
		}
	}
	kinds := map[string][]*test{}
	for _, t := range all[few:] {
		kinds[t.kind()] = append(kinds[t.kind()], t)
	}
	turn := map[*test]int{}
	for _, of := range kinds {
		slices.SortFunc(of, func(a, b *test) int {
			return cmp.Or(b.kills-a.kills, a.way()-b.way(), cmp.Compare(a.cost, b.cost))
		})
		for i, t := range of {
			turn[t] = i
		}
	}
	slices.SortFunc(all[few:], func(a, b *test) int {
		return cmp.Or(turn[a]-turn[b], cmp.Compare(a.cost, b.cost), strings.Compare(a.name, b.name))
	})
	return all
}

func (s *stand) credit(m *mutant.Mutant, tests []*test, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills++
	for _, t := range tests {
		if t.name == name {
			t.kills++
			t.last[""], t.last[m.Class] = s.kills, s.kills
		}
	}
}
