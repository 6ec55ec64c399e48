package failpoints_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisserver"
)

// patience bounds every wait for something that must happen.
const patience = 2 * time.Minute // one busy core starts dozens of processes meanwhile

// A process is a running victim.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports chan report
	exited  chan struct{}
}

// starting bounds how many processes start at a time: that is what costs most, and
// those that have a short lease must not starve meanwhile.
var starting = make(chan struct{}, 3)

// launch starts a victim.
func launch(t *testing.T, c config) *process {
	t.Helper()
	text, err := json.Marshal(c)
	must(t, err)
	binary, err := os.Executable()
	must(t, err)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), victimEnv+"="+string(text), "GOMAXPROCS=2")
	cmd.SysProcAttr = redisserver.DieWithParent()
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	starting <- struct{}{}
	begun := sync.OnceFunc(func() { <-starting })
	if err := cmd.Start(); err != nil {
		begun()
		t.Fatal(err)
	}
	p := &process{t, cmd, in, make(chan report, 100), make(chan struct{})}
	go func() {
		defer close(p.exited)
		defer begun()
		for d := json.NewDecoder(out); ; {
			var r report
			if d.Decode(&r) != nil {
				break
			}
			begun()
			p.reports <- r
		}
		close(p.reports)
		_ = cmd.Wait() // how it ended is seen by what it said
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the victim said:\n%s", said.String())
		}
	})
	return p
}

// next takes the next report, which must be of the given kind.
func (p *process) next(what string) report {
	p.t.Helper()
	r := p.report()
	if r.What != what {
		p.t.Fatalf("the victim reports %+v, want %q", r, what)
	}
	return r
}

// report takes the next report.
func (p *process) report() (r report) {
	p.t.Helper()
	select {
	case r = <-p.reports: // one of nothing if it has ended
	case <-time.After(patience):
		p.t.Fatal("the victim reports nothing")
	}
	return r
}

// ended has the victim finish what it holds, and returns what it was told. Between
// the first and the second of these ends it does what else is to be done.
func (p *process) ended(between func()) map[string]string {
	p.t.Helper()
	p.tell("end")
	r := p.report()
	if r.What == "between" {
		between()
		p.tell("more")
		r = p.report()
	}
	if r.What != "ended" {
		p.t.Fatalf("the victim reports %+v", r)
	}
	return r.Ends
}

// tell says a line to the victim.
func (p *process) tell(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	must(p.t, err)
}

// verdict has the held call of a peer that was given up for dead go on, from a place
// where it is in the peer's hands; else its connection is cut.
func (p *process) verdict(at place) {
	p.t.Helper()
	if at == sent || at == done {
		p.tell("cut")
	} else {
		p.tell("on")
	}
}

// stop stops the process, and returns once it stands still.
func (p *process) stop() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(p.t, "the victim stands still", func() bool { return stopped(p.cmd.Process.Pid) })
}

// cont has it go on.
func (p *process) cont() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// kill kills it, and returns when it is dead.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("it never came that %s", what)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
