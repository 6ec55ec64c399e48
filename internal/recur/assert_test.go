package recur

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// Schedules that end are counted in one log line, which contains no key.
func TestEndedIsBounded(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	for i := range 40 {
		r.do("HSET", fmt.Sprint("p:recurrence:{q}:k:secret", i), "print", "1a", "passed", 1)
		r.do("ZADD", "p:recurring:{q}", 1, fmt.Sprint("k:secret", i))
	}
	long := time.Now().Add(-3 * r.period)
	l := &site{Target: r.target("q")}
	for range 2 { // the first one learns Redis's time
		_, err := r.ask(t.Context(), &home{steady: long}, l, nil)
		is.NoErr(err)
	}
	lines := r.lines("schedules ended")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "count=40"))
	is.Equal(strings.Count(lines[0], "#"), named)
	is.True(!strings.Contains(lines[0], "secret"))
}

// A page that Redis can't take completely doesn't delay the others. A key of the wrong type is
// logged once, without its name.
func TestDamagedRecord(t *testing.T) {
	is := redistest.Parallel(t)
	r := newRig(t)
	r.do("SET", "p:recurrence:{q}:k:secret", "of another type")
	r.set("q", "secret", every(time.Hour))
	for i := range 2 * perCall {
		r.set("q", fmt.Sprint(i), every(time.Hour))
	}
	r.run()
	r.eventually("all are there", func() bool {
		for i := range 2 * perCall {
			if !r.held("q", fmt.Sprint(i)) {
				return false
			}
		}
		return true
	})
	r.quiet(6)
	lines := r.lines("")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "wrong type") && !strings.Contains(lines[0], "secret"))
}
