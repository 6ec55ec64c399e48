package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// Whatever their size, skipping tasks that are left to other workers takes no more than the budget,
// and doesn't read them again.
func TestRiskyBytes(t *testing.T) {
	// The test doesn't run beside others: they wait until it ends.
	rewrite(t, func(source string) string { return strings.Replace(counting, "#s > 65536", "#s > 1024", 1) + source })
	for _, size := range []int{32 << 10, 100 << 10} {
		e := newEnv(t, redistest.Start(t).URL(), nil)
		e.seed(member)
		const n, budget = 60, 1500
		for i := range n {
			p := fmt.Sprint(i) + strings.Repeat("x", size)
			e.must(e.conn.Do("LPUSH", e.q.Waiting(), p))
			e.must(e.conn.Do("HSET", e.q.Ledger(), digest(p), 2))
		}
		// The last payload read and hashed may exceed the budget.
		most := budget*400 + 2*(size+1024)
		round := Round{Crashes: 3, Keep: 10, Budget: budget}
		// rounds makes rounds until one finds nothing more to look at. Each may read at most that many
		// bytes.
		rounds := func(what string, most int) {
			t.Helper()
			for again := true; again; {
				if round.Number++; round.Number > 500 {
					t.Fatalf("%s: there is no end", what)
				}
				round.Start = []string{fmt.Sprint("p", round.Number)}
				a := e.round(round)
				if len(a.Started) > 0 {
					t.Fatal(a)
				}
				hashed, read := e.counted()
				if bytes := hashed + read; bytes > most {
					t.Errorf("%s: a round has read and hashed %d bytes of payloads of %d, want %d at most", what, bytes, size, most)
				}
				if a.Passed != nil {
					round.Passed = *a.Passed
				}
				again = a.Again
			}
		}
		rounds("from the list", most)
		if waiting, apart := e.count("LLEN", "queues"), e.count("ZCARD", "schedule"); waiting != 0 || apart != n {
			t.Fatal(waiting, apart)
		}
		rounds("again", 0)
		round.Passed = Passed{}
		rounds("from the head", 0)
		all := e.must(e.conn.Do("ZRANGE", e.q.Schedule(), 0, -1)).([]any)
		for _, entry := range all {
			e.must(e.conn.Do("HDEL", e.q.Keyed(string(entry.([]byte))), "digest"))
		}
		round.Passed = Passed{}
		rounds("whose digests are not known", most)
		if round.Passed.Count != n {
			t.Error(round.Passed)
		}
		rounds("that are known to be left", 0)
	}
}

// dueEntries returns n due entries, in the order of their names; crashes returns the crashes of each.
func dueEntries(n int, crashes func(i int) int) state {
	return member.waiting(series(n, func(i int) waiting {
		return waiting{fmt.Sprintf("k:t%04d", i), "t" + itoa(i), "7", crashes(i)}
	})...)
}

// riskyEntries returns n due entries that one more crash would fail, except for the safe ones.
func riskyEntries(n int, safe ...int) state {
	return dueEntries(n, func(i int) int {
		if slices.Contains(safe, i) {
			return 0
		}
		return 2
	})
}

// Each round reads two hundred of the entries that are skipped, and the next round continues after
// them.
func TestGuardPassedOver(t *testing.T) {
	t.Parallel()
	// Each round has what the last one returned.
	round := func(solo bool, ids ...string) func(*env, *Round) {
		return func(_ *env, r *Round) { r.Start, r.Solo = ids, solo }
	}
	comes := func(entry string, due, crashes int) func(*env, *Round) {
		return func(e *env, _ *Round) {
			e.must(e.conn.Do("ZADD", e.q.Schedule(), due, entry))
			e.must(e.conn.Do("HSET", e.q.Keyed(entry), "payload", "x", "crashes", crashes))
		}
	}
	goes := func(from, to int) func(*env, *Round) {
		return func(e *env, _ *Round) {
			for i := from; i < to; i++ {
				e.must(e.line.One(e.ctx, RemoveCall(e.q, fmt.Sprintf("k:t%04d", i))))
			}
		}
	}
	for _, c := range []struct {
		name  string
		seed  state
		calls []func(*env, *Round)
		want  []string
	}{
		{"page by page", riskyEntries(500, 400, 401), []func(*env, *Round){round(false, "p1", "p2"), round(false, "p1", "p2"), round(false, "p1", "p2"), round(false, "p3")},
			[]string{"again 200", "again 400", "k:t0400 k:t0401 400", "498"}},
		{"one by one", riskyEntries(500), []func(*env, *Round){round(false, "p1"), round(false, "p1")}, []string{"again 200", "again 400"}},
		{"with many ids", riskyEntries(300), []func(*env, *Round){round(false, seq("p", 0, 250)...)}, []string{"again 200"}},
		{"two hundred", riskyEntries(200), []func(*env, *Round){round(false, "p1")}, []string{"200"}},
		{"one behind", riskyEntries(201, 200), []func(*env, *Round){round(false, "p1"), round(false, "p1")}, []string{"again 200", "k:t0200 200"}},
		{"one of them may start", riskyEntries(300), []func(*env, *Round){round(false, "p1"), round(false, "p1"), round(true, "p1", "p2"), round(false, "p3")},
			[]string{"again 200", "300", "k:t0000 299", "299"}},
		{"one of them may start, and no more is wanted", riskyEntries(300), []func(*env, *Round){round(false, "p1"), round(false, "p1"), round(true, "p1")},
			[]string{"again 200", "300", "k:t0000 299"}},
		{"the first may start anyway", riskyEntries(300), []func(*env, *Round){round(false, "p1"), round(false, "p1"), comes("k:t0000", 7, 0), round(true, "p1", "p2", "p3")},
			[]string{"again 200", "300", "", "k:t0000 299"}},
		{"all but the last have gone", riskyEntries(201), []func(*env, *Round){round(false, "p1"), goes(0, 199), round(true, "p1")},
			[]string{"again 200", "", "k:t0199 0"}},
		{"few are looked at again", riskyEntries(2), []func(*env, *Round){round(false, "p1", "p2"), comes("k:t0000", 7, 0), round(false, "p1", "p2")},
			[]string{"0", "", "k:t0000 0"}},
		{"something comes before", riskyEntries(300), []func(*env, *Round){round(false, "p1"), round(false, "p1"), comes("k:t0299", 1, 1), round(false, "p1")},
			[]string{"again 200", "300", "", "k:t0299 0"}},
		{"something comes between", riskyEntries(300), []func(*env, *Round){round(false, "p1"), round(false, "p1"), comes("k:t0000x", 7, 0), round(false, "p1")},
			[]string{"again 200", "300", "", "k:t0000x 0"}},
		{"others take the first", riskyEntries(300), []func(*env, *Round){round(false, "p1"), round(false, "p1"), goes(0, 1), round(false, "p1")},
			[]string{"again 200", "300", "", "299"}},
		{"others take the last", riskyEntries(201), []func(*env, *Round){round(false, "p1"), round(false, "p1"), goes(200, 201), round(false, "p1")},
			[]string{"again 200", "201", "", "200"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, c.seed)
			r := Round{Crashes: 3, Keep: 1000}
			for i, call := range c.calls {
				r.Start = nil
				if call(e, &r); r.Start == nil {
					continue
				}
				r.Number++
				a := e.round(r)
				if a.Passed == nil {
					t.Fatal(a)
				}
				var w words
				for _, s := range a.Started {
					w.all = append(w.all, s.Entry)
				}
				w.all = append(w.all, itoa(a.Passed.Count))
				w.flag("again", a.Again)
				got, want := strings.Fields(w.String()), strings.Fields(c.want[i])
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("round %d answered %q, want %q", i+1, got, want)
				}
				r.Passed = *a.Passed
			}
		})
	}
	t.Run("no wake-up for tasks behind it", func(t *testing.T) {
		e := beside(t, riskyEntries(202, 200, 201).with("idle", "(w2=clock:-1m)"), "w2")
		if got := steps(Round{Worker: "w1", Number: 1, Crashes: 3, Start: []string{"p1"}})(e); got != "again" {
			t.Error(got)
		}
		if heard := e.heard(); heard != nil {
			t.Error(heard)
		}
	})
}

// A round that has looked at the schedule returns how many entries it skipped, the last of them and
// the time of the first, unless looking again takes almost no time.
func TestGuardTellsPassed(t *testing.T) {
	t.Parallel()
	one := Round{Number: 1, Crashes: 3, Start: []string{"p1"}}
	none := one
	none.Start = nil
	for _, c := range []struct {
		name  string
		seed  state
		round Round
		want  string
	}{
		{"nothing is planned", member, one, ""},
		{"nothing is due", keyX.with("schedule", "(k:x=+60m)"), one, "{0  0}"},
		{"one is passed over", riskyEntries(1), one, "{0  0}"},
		{"too few to report", riskyEntries(49), one, "{0  0}"},
		{"as many as take 200 µs", riskyEntries(50), one, "{50 k:t0049 7}"},
		{"the budget ends among few", riskyEntries(3), Round{Number: 1, Crashes: 3, Budget: 5, Start: []string{"p1"}}, "{2 k:t0001 7}"},
		{"nothing is wanted", keyX, none, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := beside(t, c.seed)
			if passed := e.round(c.round).Passed; passed == nil && c.want != "" || passed != nil && fmt.Sprint(*passed) != c.want {
				t.Errorf("got %v, want %s", passed, c.want)
			}
		})
	}
}
