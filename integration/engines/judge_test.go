package engines

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
)

// TestJudge checks that the judge finds every violation, and nothing else.
func TestJudge(t *testing.T) {
	t.Parallel()
	type says []load.Event
	type step struct {
		op    string
		phase load.Phase
		note  string
	}
	var (
		try       = step{load.OpEnqueue, load.Invoke, ""}
		okay      = step{load.OpEnqueue, load.Okay, ""}
		refused   = step{load.OpEnqueue, load.Refused, ""}
		began     = step{load.OpRun, load.Invoke, ""}
		told      = step{load.OpEnded, load.Okay, load.NoteEvicted}
		finishing = step{load.OpFinish, load.Invoke, ""}
		done      = step{load.OpFinish, load.Okay, ""}
		stale     = step{load.OpFinish, load.Refused, ""}
		again     = step{load.OpRun, load.Okay, load.NoteRetry}
		returned  = step{load.OpRun, load.Okay, ""}
		cancel    = step{load.OpCancel, load.Invoke, ""}
		canceled  = step{load.OpGone, load.Okay, ""}
		kept      = step{load.OpGone, load.Okay, load.NoteKept}
		stopped   = step{load.OpGone, load.Okay, load.NoteStopped}
		finished  = step{load.OpWait, load.Okay, string(worqr.OutcomeFinished)}
		failed    = step{load.OpWait, load.Okay, string(worqr.OutcomeFailed)}
		noResult  = step{load.OpWait, load.Refused, "no result"}
	)
	keyed := func(w step, task string) load.Event {
		return load.Event{Peer: "p", Op: w.op, Phase: w.phase, Note: w.note, Tasks: []string{task}, Key: "k"}
	}
	in := func(w step) load.Event {
		e := keyed(w, "a")
		e.Key = ""
		return e
	}
	runs := func(task string, w step, token int64) load.Event {
		e := keyed(w, task)
		e.Token, e.Process = token, fmt.Sprint("process ", token)
		return e
	}
	run := func(w step, token int64) load.Event { return runs("a", w, token) }
	const second = int64(time.Second)
	for name, c := range map[string]struct {
		said  says
		dead  int64 // when the peer was killed
		slept int64 // when it was stopped, for a second
		death int64 // of a master that took writes with it
		wrong string
	}{
		"done":                        {said: says{in(try), in(okay), run(began, 1), run(finishing, 1), run(done, 1)}},
		"returned":                    {said: says{in(try), in(okay), run(began, 1), run(returned, 1)}},
		"lost":                        {said: says{in(try), in(okay)}, wrong: "a is lost"},
		"lost with a master":          {said: says{in(try), in(okay)}, death: 2 * second},
		"lost before a master died":   {said: says{in(try), in(okay)}, death: 20 * second, wrong: "a is lost"},
		"killed in between":           {said: says{in(try)}},
		"it was there":                {said: says{in(try), run(began, 1), run(returned, 1)}},
		"refused, and there":          {said: says{in(try), in(refused), run(began, 1), run(returned, 1)}, wrong: "a was done 1 times"},
		"never enqueued":              {said: says{run(began, 1)}, wrong: "nobody enqueued it"},
		"again":                       {said: says{in(try), in(okay), run(began, 1), run(again, 1), run(began, 2), run(returned, 2)}},
		"again, with a lower token":   {said: says{in(try), in(okay), run(began, 2), run(again, 2), run(began, 1), run(returned, 1)}, wrong: "a has token 1 after 2"},
		"again, without a reason":     {said: says{in(try), in(okay), run(began, 1), run(finishing, 1), run(stale, 1), run(began, 2), run(returned, 2)}, wrong: "without a reason"},
		"done twice":                  {said: says{in(try), in(okay), run(began, 1), run(finishing, 1), run(done, 1), run(began, 2), run(returned, 2)}, wrong: "done 2 times"},
		"done twice after a rollback": {said: says{in(try), in(okay), run(began, 1), run(finishing, 1), run(done, 1), run(began, 2), run(returned, 2)}, death: 5 * second},
		"unique, one after the other": {said: says{in(try), in(okay), run(began, 1), run(returned, 1), in(try), in(okay), run(began, 2), run(returned, 2)}},
		"unique, beside each other":   {said: says{in(try), in(okay), run(began, 1), in(try), in(okay), run(began, 2), run(returned, 2), run(returned, 1)}, wrong: "a has two owners"},
		"killed, and again":           {said: says{in(try), in(okay), run(began, 1), run(finishing, 1), run(began, 2), run(returned, 2)}, dead: 4*second + second/2},
		"killed too late for that":    {said: says{in(try), in(okay), run(began, 1), run(began, 2), run(returned, 2)}, dead: 30 * second, wrong: "a has two owners"},
		"stopped, and again":          {said: says{in(try), in(okay), run(began, 1), run(began, 2), run(returned, 2), run(told, 1), run(finishing, 1), run(stale, 1)}, slept: 4*second - second/2},
		"stopped, and not refused":    {said: says{in(try), in(okay), run(began, 1), run(began, 2), run(finishing, 2), run(done, 2), run(finishing, 1), run(done, 1)}, slept: 4*second - second/2, wrong: "a was done 2 times"},
		"stopped too late for that":   {said: says{in(try), in(okay), run(began, 1), run(began, 2), run(returned, 2)}, slept: 30 * second, wrong: "a has two owners"},
		"starved, and again":          {said: says{in(try), in(okay), run(began, 1), run(began, 2), run(returned, 2), {Peer: "p", Op: load.OpLate, Waited: 2 * second}}},
		"told in time, and again":     {said: says{in(try), in(okay), run(began, 1), run(told, 1), run(began, 2), run(returned, 2)}},
		"two with one token":          {said: says{in(try), in(okay), run(began, 1), run(again, 1), run(began, 1), run(returned, 1)}, wrong: "with token 1"},
		"canceled":                    {said: says{in(try), in(okay), in(cancel), in(canceled)}},
		"canceled, and begins":        {said: says{in(try), in(okay), in(cancel), in(canceled), run(began, 1), run(returned, 1)}, wrong: "after its cancel"},
		"canceled ahead of a handler": {said: says{in(try), in(okay), in(cancel), in(stopped)}},
		"not removed, and lost":       {said: says{in(try), in(okay), in(cancel), in(kept)}, wrong: "a is lost"},
		"too late to remove, begins":  {said: says{in(try), in(okay), in(cancel), in(stopped), run(began, 1)}, wrong: "after its cancel"},
		"too early to remove, begins": {said: says{in(try), in(cancel), in(stopped), run(began, 1), run(returned, 1)}},
		"replaced under its key":      {said: says{keyed(try, "a"), keyed(okay, "a"), keyed(try, "b"), keyed(okay, "b"), runs("b", began, 1), runs("b", returned, 1)}},
		"the last one under its key":  {said: says{keyed(try, "a"), keyed(okay, "a"), keyed(try, "b"), keyed(okay, "b"), runs("a", began, 1), runs("a", returned, 1)}, wrong: "under key k is lost"},
		"Wait finds no result":        {said: says{in(try), in(okay), run(began, 1), run(returned, 1), in(noResult)}, wrong: "Wait for a returned"},
		"Wait is told too early":      {said: says{in(try), in(okay), run(began, 1), run(again, 1), in(finished), run(began, 2)}, wrong: "Wait for a returned"},
		"Wait is told another end":    {said: says{in(try), in(okay), run(began, 1), run(returned, 1), in(failed)}, wrong: "Wait for a returned"},
		"Wait is told the end":        {said: says{in(try), in(okay), run(began, 1), run(returned, 1), in(finished)}},
		"two under one key":           {said: says{keyed(try, "a"), keyed(okay, "a"), runs("a", began, 1), keyed(try, "b"), keyed(okay, "b"), runs("b", began, 2), runs("b", returned, 2), runs("a", returned, 1)}, wrong: "key k has two owners"},
	} {
		t.Run(name, func(t *testing.T) {
			l, m := newLedger(), &member{}
			l.dead["p"] = c.dead
			if c.slept > 0 {
				l.harmed["p"] = []*span{{c.slept, c.slept + second}}
			}
			for i, e := range c.said {
				e.Mono = int64(i+1) * second
				l.hear(m, e)
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

// stop counts a pause only if it touches the span.
func TestStop(t *testing.T) {
	t.Parallel()
	events := []int64{90, 10, 20, 50, 55, 60}
	for _, c := range []struct{ from, to, want int64 }{{0, 15, 10}, {25, 30, 30}, {56, 58, 5}, {52, 70, 30}, {95, 99, 0}} {
		if got := stop(events, c.from, c.to); int64(got) != c.want {
			t.Errorf("from %d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
}
