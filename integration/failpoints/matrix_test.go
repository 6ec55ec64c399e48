package failpoints_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// TestMatrix applies every fault at every place to every call.
func TestMatrix(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range cells {
				if !s.applies(c) {
					continue
				}
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					defer hint(t)
					run(t, s, c)
				})
			}
		})
	}
}

// hint logs how to repeat a failed cell.
func hint(t *testing.T) {
	if t.Failed() {
		t.Logf("repeat it: go test ./integration/failpoints -run '^%s$' -v", strings.ReplaceAll(t.Name(), "/", "$/^"))
	}
}

// run makes the call, applies the fault, and checks the result.
func run(t *testing.T, s *scenario, c cell) {
	promise, isFailed := s.promised(c), s.isFailed(c)
	w := newWorld(t, s.leaseOf(c))
	if s.seed == nil {
		w.enqueue("a", "b", "c")
	} else {
		s.seed(w)
	}
	p := launch(t, config{URL: redistest.URL(), Prefix: w.prefix, Scenario: s.name, Place: c.holds(), Times: c.times(), Lease: w.lease})
	first := p.next("ready").Worker
	if s.meanwhile != nil {
		s.meanwhile(w)
	}
	p.Tell("go")
	reached := p.next("reached")

	n, alive := promise.effect, c.fault != kill
	switch c.fault {
	case kill:
		p.Kill()
		w.gone(reached.Worker)
		if c.place == sent {
			w.deliver(reached.Commands)
			w.gone(reached.Worker)
		}
	case pause:
		p.Stop()
		w.gone(reached.Worker)
		if c.place == sent {
			w.deliver(reached.Commands)
			w.gone(reached.Worker)
		}
		p.Continue()
		p.verdict(c.place)
	case evict:
		redistest.Sure(w.rescuer.FailWorker(t.Context(), reached.Worker))(t)
		if c.place == sent {
			w.deliver(reached.Commands)
		}
		p.verdict(c.place)
	case lost, late:
		p.Tell("cut")
	case twice:
		p.Tell("cut")
		p.next("reached")
		p.Tell("cut")
	case again:
		if c.place == atOnce {
			w.deliver(reached.Commands)
		}
		p.Tell("on")
	}
	if alive {
		r := p.next("result")
		if r.Result != promise.result && (r.Result != promise.or || promise.or == "") {
			t.Errorf("the caller got %q (%s), want %q, or %q", r.Result, r.Err, promise.result, promise.or)
		}
	}
	if c.fault == twice {
		w.calm(first, len(s.keeps(c)), s.role)
	}
	if c == (cell{again, failed}) {
		redistest.Sure(w.rescuer.FailWorker(t.Context(), first))(t)
		if s.role == comer {
			w.pass() // time for a worker to come back
		}
		w.deliver(reached.Commands)
		if w.do("ZSCORE", w.keys.Workers(), first) != nil {
			t.Error("a worker that was failed is a member again")
		}
	}
	if alive {
		ends := p.ended(func() {
			if c == (cell{again, next}) {
				w.deliver(reached.Commands)
			}
		})
		w.refused(ends, s.keeps(c), isFailed)
	}
	leftover := s.waits(c)
	if s.after != nil {
		s.after(w, n)
	}
	w.drains(leftover, s.named...)
	if s.fails != nil {
		if got, want := w.failures(), s.fails(n); !slices.Equal(got, want) {
			t.Errorf("failed are %q, want %q", got, want)
		}
	}
	finished := strip(leftover)
	if !isFailed && alive {
		finished = append(finished, s.keeps(c)...)
	}
	if n > 0 {
		finished = append(finished, s.ends...)
	}

	// tardy delivers a late copy, which finds a task that it must not take.
	tardy := func(adds []string) {
		if s.role != stranger {
			w.enqueue("bait")
			adds = append(adds, "bait")
		}
		w.deliver(reached.Commands)
		w.drains(adds)
		finished = append(finished, adds...)
	}
	if alive {
		w.enqueue(proof)
		p.Tell("prove")
		r := p.next("holding")
		if isFailed && s.role == member && r.Worker == first {
			t.Errorf("it still has the id under which it was evicted")
		}
		if !isFailed && s.role == member && r.Worker != first {
			t.Errorf("it was evicted")
		}
		switch c {
		case cell{late, sent}:
			tardy(s.late)
		case cell{again, goneOn}:
			tardy(s.again)
		}
		p.Tell("finish")
		p.next("proved")
		finished = append(finished, proof)
		p.Tell("leave")
		p.next("left")
	}
	if c == (cell{again, left}) {
		tardy(s.again)
	}
	w.ends(finished)
	redistest.Sure(w.queue.DeleteAllFailed(t.Context()))(t)
	if s.ended != nil {
		s.ended(w)
	}
	w.leave()
}

// strip removes the marks that drain adds.
func strip(tasks []string) (payloads []string) {
	for _, t := range tasks {
		t, _, _ = strings.Cut(t, "!")
		t, _, _ = strings.Cut(t, "+")
		payloads = append(payloads, t)
	}
	return payloads
}
