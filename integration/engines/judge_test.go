package engines

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
)

// The judge finds each violation. If it found others, the campaigns would fail.
func TestJudge(t *testing.T) {
	t.Parallel()
	type says []load.Event
	on := func(task, op string, phase load.Phase, note string) load.Event {
		return load.Event{Peer: "p", Op: op, Phase: phase, Note: note, Tasks: []string{task}}
	}
	run := func(token int64, op string, phase load.Phase, note string) load.Event {
		e := on("a", op, phase, note)
		e.Token, e.Process = token, fmt.Sprint("process ", token)
		return e
	}
	keyed := func(task string, e load.Event) load.Event {
		e.Tasks, e.Key = []string{task}, "k"
		return e
	}
	began := func(token int64) load.Event { return run(token, load.OpRun, load.Invoke, "") }
	returned := func(token int64) load.Event { return run(token, load.OpRun, load.Okay, "") }
	again := func(token int64) load.Event { return run(token, load.OpRun, load.Okay, load.NoteRetry) }
	finishing := run(1, load.OpFinish, load.Invoke, "")
	done, stale := run(1, load.OpFinish, load.Okay, ""), run(1, load.OpFinish, load.Refused, "")
	try, okay := on("a", load.OpEnqueue, load.Invoke, ""), on("a", load.OpEnqueue, load.Okay, "")
	refused := on("a", load.OpEnqueue, load.Refused, "")
	cancel := on("a", load.OpCancel, load.Invoke, "")
	canceled, kept := on("a", load.OpGone, load.Okay, ""), on("a", load.OpGone, load.Okay, load.NoteKept)
	waited := func(end worqr.Outcome) load.Event { return on("a", load.OpWait, load.Okay, string(end)) }
	for wrong, said := range map[string]says{
		"a is lost":                         {try, okay},
		"a is lost: []":                     {try, okay, cancel, kept},
		"a was done 1 times":                {try, refused, began(1), returned(1)},
		"nobody enqueued it":                {began(1), returned(1)},
		"a has token 1 after 2":             {try, okay, began(2), again(2), began(1), returned(1)},
		"again without a reason":            {try, okay, began(1), finishing, stale, began(2), returned(2)},
		"done 2 times":                      {try, okay, began(1), finishing, done, began(2), returned(2)},
		"a has two owners":                  {try, okay, began(1), try, okay, began(2), returned(2), returned(1)},
		"with token 1":                      {try, okay, began(1), again(1), began(1), returned(1)},
		"after its cancel":                  {try, okay, cancel, canceled, began(1), returned(1)},
		`Wait for a returned "finished"`:    {try, okay, began(1), again(1), waited(worqr.OutcomeFinished), began(2)},
		`Wait for a returned "failed"`:      {try, okay, began(1), returned(1), waited(worqr.OutcomeFailed)},
		"the last task under key k is lost": {keyed("a", try), keyed("a", okay), keyed("b", try), keyed("b", okay), keyed("a", began(1)), keyed("a", returned(1))},
		"key k has two owners":              {keyed("a", try), keyed("a", okay), keyed("a", began(1)), keyed("b", try), keyed("b", okay), keyed("b", began(2)), keyed("b", returned(2)), keyed("a", returned(1))},
	} {
		t.Run(wrong, func(t *testing.T) {
			l := newLedger()
			for i, e := range said {
				e.Mono = int64(i+1) * int64(time.Second)
				l.hear(&member{}, e)
			}
			if _, found := l.judge(); !strings.Contains(strings.Join(found, "; "), wrong) {
				t.Errorf("it says %q", found)
			}
		})
	}
}
