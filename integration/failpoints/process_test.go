package failpoints_test

import (
	"testing"

	"github.com/worqr/worqr/integration/crash"
)

// A process is a running victim.
type process struct {
	*crash.Process[report]
	t *testing.T
}

// launch starts a victim.
func launch(t *testing.T, c config) process {
	t.Helper()
	return process{crash.Launch[report](t, c), t}
}

// next takes the next report, which must be of the given kind.
func (p process) next(what string) report {
	p.t.Helper()
	r := p.Next()
	if r.What != what {
		p.t.Fatalf("the victim reports %+v, want %q", r, what)
	}
	return r
}

// ended has the victim finish what it holds, and returns what it was told. Between
// the first and the second of these ends it does what else is to be done.
func (p process) ended(between func()) map[string]string {
	p.t.Helper()
	p.Tell("end")
	r := p.Next()
	if r.What == "between" {
		between()
		p.Tell("more")
		r = p.Next()
	}
	if r.What != "ended" {
		p.t.Fatalf("the victim reports %+v", r)
	}
	return r.Ends
}

// verdict has the held call of a peer that was given up for dead go on, from a place
// where it is in the peer's hands; else its connection is cut.
func (p process) verdict(at place) {
	p.t.Helper()
	if at == sent || at == done {
		p.Tell("cut")
	} else {
		p.Tell("on")
	}
}
