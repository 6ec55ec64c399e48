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

// next returns the next report, which must be of the given kind.
func (p process) next(what string) report {
	p.t.Helper()
	r := p.Next()
	if r.What != what {
		p.t.Fatalf("the victim reports %+v, want %q", r, what)
	}
	return r
}

// ended makes the victim finish the tasks it holds, and returns the results. It calls between after
// the first.
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

// verdict decides on the held call of an evicted peer: it cuts the connection if the call or its
// reply is in flight, and otherwise continues the call.
func (p process) verdict(at place) {
	p.t.Helper()
	if at == sent || at == executed {
		p.Tell("cut")
	} else {
		p.Tell("on")
	}
}
