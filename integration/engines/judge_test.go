package engines

import (
	"strings"
	"testing"
	"time"
)

// The judge finds every violation, and nothing else.
func TestJudge(t *testing.T) {
	t.Parallel()
	in := func(w what) report { return report{What: w, Tasks: []string{"a"}} }
	keyed := func(w what, task string) report { return report{What: w, Tasks: []string{task}, Key: "k"} }
	run := func(w what, token int64) report {
		return report{What: w, Task: "a", Token: token, Attempt: string(rune('A' + token))}
	}
	runs := func(task string, w what, token int64) report {
		r := run(w, token)
		r.Task, r.Key = task, "k"
		return r
	}
	const second = int64(time.Second)
	for name, c := range map[string]struct {
		said  []report
		dead  int64 // when the peer was killed
		death int64 // of a master that took something with it
		wrong string
	}{
		"done":                        {said: []report{in(try), in(okay), run(began, 1), run(finishing, 1), run(done, 1)}},
		"returned":                    {said: []report{in(try), in(okay), run(began, 1), run(returned, 1)}},
		"lost":                        {said: []report{in(try), in(okay)}, wrong: "a is lost"},
		"lost with a master":          {said: []report{in(try), in(okay)}, death: 2 * second},
		"lost before a master died":   {said: []report{in(try), in(okay)}, death: 20 * second, wrong: "a is lost"},
		"killed in between":           {said: []report{in(try)}},
		"it was there":                {said: []report{in(try), run(began, 1), run(returned, 1)}},
		"refused, and there":          {said: []report{in(try), in(refused), run(began, 1), run(returned, 1)}, wrong: "a was done 1 times"},
		"nobody's":                    {said: []report{run(began, 1)}, wrong: "nobody has enqueued it"},
		"again":                       {said: []report{in(try), in(okay), run(began, 1), run(again, 1), run(began, 2), run(returned, 2)}},
		"again, with a lower token":   {said: []report{in(try), in(okay), run(began, 2), run(again, 2), run(began, 1), run(returned, 1)}, wrong: "a has token 1 after 2"},
		"again, without a reason":     {said: []report{in(try), in(okay), run(began, 1), run(finishing, 1), run(stale, 1), run(began, 2), run(returned, 2)}, wrong: "without a reason"},
		"done twice":                  {said: []report{in(try), in(okay), run(began, 1), run(finishing, 1), run(done, 1), run(began, 2), run(returned, 2)}, wrong: "done 2 times"},
		"done twice after a rollback": {said: []report{in(try), in(okay), run(began, 1), run(finishing, 1), run(done, 1), run(began, 2), run(returned, 2)}, death: 5 * second},
		"unique, one after the other": {said: []report{in(try), in(okay), run(began, 1), run(returned, 1), in(try), in(okay), run(began, 2), run(returned, 2)}},
		"unique, beside each other":   {said: []report{in(try), in(okay), run(began, 1), in(try), in(okay), run(began, 2), run(returned, 2), run(returned, 1)}, wrong: "a has two owners"},
		"killed, and again":           {said: []report{in(try), in(okay), run(began, 1), run(finishing, 1), run(began, 2), run(returned, 2)}, dead: 4*second + second/2},
		"killed too late for that":    {said: []report{in(try), in(okay), run(began, 1), run(began, 2), run(returned, 2)}, dead: 30 * second, wrong: "a has two owners"},
		"two with one token":          {said: []report{in(try), in(okay), run(began, 1), run(again, 1), run(began, 1), run(returned, 1)}, wrong: "with token 1"},
		"canceled":                    {said: []report{in(try), in(okay), {What: cancel, Task: "a"}, {What: canceled, Task: "a"}}},
		"canceled, and begins":        {said: []report{in(try), in(okay), {What: cancel, Task: "a"}, {What: canceled, Task: "a"}, run(began, 1), run(returned, 1)}, wrong: "after its cancel"},
		"replaced under its key":      {said: []report{keyed(try, "a"), keyed(okay, "a"), keyed(try, "b"), keyed(okay, "b"), runs("b", began, 1), runs("b", returned, 1)}},
		"the last one under its key":  {said: []report{keyed(try, "a"), keyed(okay, "a"), keyed(try, "b"), keyed(okay, "b"), runs("a", began, 1), runs("a", returned, 1)}, wrong: "under key k is lost"},
		"two under one key":           {said: []report{keyed(try, "a"), keyed(okay, "a"), runs("a", began, 1), keyed(try, "b"), keyed(okay, "b"), runs("b", began, 2), runs("b", returned, 2), runs("a", returned, 1)}, wrong: "key k has two owners"},
	} {
		t.Run(name, func(t *testing.T) {
			l, m := newLedger(false), &member{name: "p", dead: c.dead}
			for i, r := range c.said {
				r.At = int64(i+1) * second
				l.hear(m, r)
			}
			var deaths []int64
			if c.death > 0 {
				deaths = append(deaths, c.death)
			}
			_, wrong := l.judge(deaths...)
			if got := strings.Join(wrong, "; "); (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
				t.Errorf("it says %q, want %q", got, c.wrong)
			}
		})
	}
}

// The longest stop is found only where it touches the span.
func TestStop(t *testing.T) {
	t.Parallel()
	events := []int64{90, 10, 20, 50, 55, 60}
	for _, c := range []struct{ from, to, want int64 }{{0, 15, 10}, {25, 30, 30}, {56, 58, 5}, {52, 70, 30}, {95, 99, 0}} {
		if got := stop(events, c.from, c.to); int64(got) != c.want {
			t.Errorf("from %d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
}
