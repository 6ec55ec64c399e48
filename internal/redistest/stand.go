package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// A Stand is what the harness takes for a test where there is none: around all tests of a binary, and
// in campaigns and measurements. What fails on it panics: see Try.
type Stand struct {
	testing.TB        // nil: what the harness doesn't use isn't there
	Dir        string // of its temporary directories; "" is that of the system

	mu     sync.Mutex // protects the fields below
	ends   []func()
	failed []error
}

type failure struct{ error }

// Outside calls do with a stand, and ends what was started on it. It returns what has failed.
func Outside(do func(t *Stand) error) (err error) {
	t := &Stand{}
	defer func() { err = errors.Join(err, t.End()) }()
	failed := Try(func() { err = do(t) })
	return errors.Join(err, failed)
}

// Try returns what fails on a stand in do.
func Try(do func()) (err error) {
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

// End ends all that was started, the last first, and returns what was wrong.
func (s *Stand) End() error {
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

// Helper and the following are those of a test.
func (s *Stand) Helper() {}

// Name is no test's.
func (s *Stand) Name() string { return "Main" }

// Cleanup has End call a function.
func (s *Stand) Cleanup(end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, end)
}

// TempDir makes a directory, which ends, too.
func (s *Stand) TempDir() string {
	dir, err := os.MkdirTemp(s.Dir, "worqr-engine-")
	Must(s, err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *Stand) Error(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, errors.New(fmt.Sprint(args...)))
}

func (s *Stand) Fatal(args ...any)                 { panic(failure{errors.New(fmt.Sprint(args...))}) }
func (s *Stand) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
func (s *Stand) Skip(args ...any)                  { s.Fatal(args...) }
