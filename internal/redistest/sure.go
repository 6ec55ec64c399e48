package redistest

import (
	"iter"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"
)

// Sure returns the value of a call that must succeed: Sure(f())(t).
func Sure[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Each yields the values of a sequence, which must not contain an error.
func Each[T any](t testing.TB, all iter.Seq2[T, error]) iter.Seq[T] {
	t.Helper()
	return func(yield func(T) bool) {
		t.Helper()
		for v, err := range all {
			if err != nil {
				t.Fatal(err)
			}
			if !yield(v) {
				return
			}
		}
	}
}

// Do carries out a command, which must succeed.
func Do(t testing.TB, c redis.Conn, command string, args ...any) any {
	t.Helper()
	return Sure(c.Do(command, args...))(t)
}

// Parallel makes a test run in parallel, and returns its assertions.
func Parallel(t *testing.T) *is.I {
	t.Helper()
	t.Parallel()
	return is.New(t)
}

// DoAll carries out commands, each of which must succeed.
func DoAll(t testing.TB, c redis.Conn, commands [][]any) {
	t.Helper()
	for _, command := range commands {
		Do(t, c, command[0].(string), command[1:]...)
	}
}

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
