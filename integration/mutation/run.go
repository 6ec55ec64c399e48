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
)

// random tests are in another order each time, so what they find is not counted:
// a mutant has to be found each time.
const random = "^TestSound$"

// A range is where mutants are tried: the test binary of internal/script, and what
// its tests reach.
type stand struct {
	root   string // of the repository
	dir    string // for files
	binary string
	source map[string]string // of each file of Lua

	mu    sync.Mutex // protects the tests
	tests map[string][]*test
}

func newStand(ctx context.Context, root, dir string) (*stand, error) {
	s := &stand{root: root, dir: dir, binary: filepath.Join(dir, "script.test"), source: map[string]string{}}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", s.binary, "./internal/script")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	paths, err := filepath.Glob(filepath.Join(root, "internal", "script", "*.lua"))
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s.source[strings.TrimSuffix(filepath.Base(path), ".lua")] = string(src)
	}
	return s, err
}

// breed returns all mutants, in order.
func (s *stand) breed() (all []mutant, err error) {
	for file, src := range s.source {
		some, err := breed(file, src)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b mutant) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.edit.from-b.edit.from)
	})
	seen := map[string]int{}
	for i := range all {
		m := &all[i]
		key := m.file + m.text
		if seen[key]++; seen[key] > 1 {
			m.text += fmt.Sprintf(" (%d)", seen[key])
		}
	}
	return all, nil
}

// rehearse runs all tests on scripts with probes.
func (s *stand) rehearse(ctx context.Context, all []mutant) error {
	dir := filepath.Join(s.dir, "rehearsal")
	reached := filepath.Join(dir, "reached")
	if err := os.MkdirAll(reached, 0o755); err != nil {
		return err
	}
	places := map[string][]place{}
	for _, m := range all {
		places[m.file] = append(places[m.file], m.place)
	}
	for file, at := range places {
		if err := os.WriteFile(filepath.Join(dir, file+".lua"), []byte(probed(file, s.source[file], at)), 0o644); err != nil {
			return err
		}
	}
	// A test that counts commands fails, because of the probes.
	out, _ := s.run(ctx, dir, time.Minute*3, "-test.skip", random)
	var err error
	if s.tests, err = read(reached); err == nil && len(s.tests) == 0 {
		err = fmt.Errorf("the tests reach nothing:\n%s", out)
	}
	return err
}

// run runs tests in the directory that tells them what to do.
func (s *stand) run(ctx context.Context, dir string, limit time.Duration, args ...string) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, append([]string{"-test.parallel", "1"}, args...)...)
	cmd.Dir = filepath.Join(s.root, "internal", "script")
	cmd.Env = append(os.Environ(), "WORQR_MUTATION="+dir, "TMPDIR="+dir)
	// With the servers that the tests have started, which may not heed the end of
	// the tests while a script of theirs does not end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return both.Bytes(), err
}

// A fate is what became of a mutant.
type fate struct {
	killed  bool
	reached bool
	by      string // the test, or "it hangs"
}

// try tries a mutant: at first with few tests that reach it, one of each kind,
// then with more.
func (s *stand) try(ctx context.Context, m *mutant) (fate, error) {
	dir, err := os.MkdirTemp(s.dir, "mutant")
	if err != nil {
		return fate{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, m.file+".lua"), []byte(m.edit.apply(s.source[m.file])), 0o644); err != nil {
		return fate{}, err
	}
	rest := s.order(m.place.in(m.file))
	f := fate{reached: len(rest) > 0}
	for budget := 100_000; len(rest) > 0; budget *= 10 {
		var some []string
		kinds, cost, taken := map[string]bool{}, 0, 0
		for _, t := range rest {
			if taken > 0 && cost+t.cost > budget {
				break
			}
			kind, _, _ := strings.Cut(t.name, "/")
			kinds["^"+kind+"$"] = true
			cost += t.cost
			some = append(some, t.name)
			taken++
		}
		if err := os.WriteFile(filepath.Join(dir, "tests"), []byte(strings.Join(some, "\n")+"\n"), 0o644); err != nil {
			return f, err
		}
		var tops []string
		for k := range kinds {
			tops = append(tops, k)
		}
		out, err := s.run(ctx, dir, 5*time.Second+time.Duration(cost)*8*time.Microsecond, "-test.run", strings.Join(tops, "|"))
		if ctx.Err() != nil {
			return f, ctx.Err()
		}
		if err != nil {
			f.killed, f.by = true, "it hangs"
			if err != context.DeadlineExceeded {
				f.by = "a panic"
				if _, by, ok := strings.Cut(string(out), "FAILED "); ok {
					f.by, _, _ = strings.Cut(by, "\n")
				} else if _, by, ok := strings.Cut(string(out), "--- FAIL: "); ok {
					f.by, _, _ = strings.Cut(by, " ")
				}
			}
			s.credit(rest[:taken], f.by)
			return f, nil
		}
		rest = rest[taken:]
	}
	return f, nil
}

// order returns the tests that reach a place: one of each kind, then a second one,
// and so on; of a kind, those that have found most, and then the cheapest.
func (s *stand) order(place string) (all []*test) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := map[string][]*test{}
	for _, t := range s.tests[place] {
		kind, _, _ := strings.Cut(t.name, "/")
		kinds[kind] = append(kinds[kind], t)
	}
	turn := map[*test]int{}
	for _, of := range kinds {
		slices.SortFunc(of, func(a, b *test) int { return cmp.Or(b.kills-a.kills, a.cost-b.cost) })
		for i, t := range of {
			turn[t] = i
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *test) int { return cmp.Or(turn[a]-turn[b], a.cost-b.cost, strings.Compare(a.name, b.name)) })
	return all
}

func (s *stand) credit(tests []*test, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tests {
		if t.name == name {
			t.kills++
		}
	}
}
