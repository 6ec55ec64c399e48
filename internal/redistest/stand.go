package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// A stand replaces a testing.TB where there is no test: around all tests of a binary, and in campaigns
// and benchmarks. A failure on it panics: see try.
type stand struct {
	testing.TB // nil: the harness doesn't use its other methods

	mu     sync.Mutex // protects the fields below
	ends   []func()
	failed []error
}

type failure struct{ error }

// Outside runs the harness for a program that isn't a test. Everything that the function do has
// started ends when do returns. Outside returns the failures.
func Outside(do func(t testing.TB)) (err error) {
	t := &stand{}
	defer func() { err = errors.Join(err, t.end()) }()
	return try(func() { do(t) })
}

// try calls do, and returns the failure on a stand, if there is one.
func try(do func()) (err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			err = f.error
		default:
			panic(f)
		}
	}()
	do()
	return nil
}

// end ends everything that was started, in reverse order, and returns the errors.
func (s *stand) end() error {
	for {
		s.mu.Lock()
		n := len(s.ends)
		if n == 0 {
			defer s.mu.Unlock()
			return errors.Join(s.failed...)
		}
		last := s.ends[n-1]
		s.ends = s.ends[:n-1]
		s.mu.Unlock()
		last()
	}
}

// Helper and the following methods implement testing.TB.
func (s *stand) Helper() {}

// Name isn't the name of a test.
func (s *stand) Name() string { return "Main" }

// Cleanup makes end call a function.
func (s *stand) Cleanup(end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, end)
}

// TempDir creates a directory, which end removes.
func (s *stand) TempDir() string {
	dir, err := os.MkdirTemp("", "worqr-engine-")
	Must(s, err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *stand) Error(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, errors.New(fmt.Sprint(args...)))
}

func (s *stand) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (s *stand) Fatal(args ...any)                 { panic(failure{errors.New(fmt.Sprint(args...))}) }
func (s *stand) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
func (s *stand) Skip(args ...any)                  { s.Fatal(args...) }
