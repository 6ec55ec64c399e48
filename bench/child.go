package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/redisserver"
)

// jobEnv names the environment variable by which this program, started once
// more, is told what to measure. Each measurement has a process of its own, so
// that the processor time and the heap in it belong to one system.
const jobEnv = "WORQR_BENCH_JOB"

// A job is one measurement.
type job struct {
	Measure  string // a key of measures
	System   string // a key of systems
	URL      string // of the server
	N        int    // tasks
	Size     int    // bytes of each payload
	Callers  int    // that enqueue at the same time
	Batch    int    // payloads in one call
	Handlers int
	Backlog  int // tasks that wait beside these
	Peers    int // idle ones, or those of a hot queue
	Queues   int
	Log      string        // the server's appendfsync; "": it has no log
	Trip     time.Duration // to the server and back, beyond what the machine takes
	Work     time.Duration // that each handler takes
	Settle   time.Duration // before a window
	Window   time.Duration // in which is measured, or nothing is to do
}

// A sample is what a measurement has found.
type sample struct {
	Values map[string]float64
}

// measures are what a child can be asked for. Each calls say with every sample
// that it has; most have one.
var measures = map[string]func(j job, s system, m *meter, say func(sample)) error{
	"enqueue": measureEnqueue,
	"process": measureProcess,
	"latency": measureLatency,
	"waiting": measureWaiting,
	"running": measureRunning,
	"idle":    measureIdle,
	"beside":  measureBeside,
	"backlog": measureBacklog,
	"queues":  measureQueues,
	"payload": measurePayload,
	"hold":    holdTasks,
	"block":   blockHandlers,
	"rescue":  rescueTasks,
	"sweep":   measureSweep,
	"through": measureThrough,
	"hot":     keepBusy,
	"quiet":   measureQuiet,
	"crew":    holdOneEach,
	"members": keepMembers,
}

// childMain is the main function of a child, whose samples go to standard
// output.
func childMain(encoded string) int {
	var j job
	err := json.Unmarshal([]byte(encoded), &j)
	var s system
	var m *meter
	if err == nil {
		s, m, err = j.open()
	}
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		err = measures[j.Measure](j, s, m, func(s sample) { _ = out.Encode(s) }) // the parent may be gone
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A child is the process of a job as its parent sees it.
type child struct {
	cmd  *exec.Cmd
	out  *json.Decoder
	said bytes.Buffer // on the error output; to be read once it has ended
}

// spawn starts a child, which ends with ctx at the latest.
func spawn(ctx context.Context, j job) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a process to measure: %w", err)
	}
	encoded, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("start a process to measure: %w", err)
	}
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), jobEnv+"="+string(encoded))
	c.cmd.Stderr = &c.said
	c.cmd.SysProcAttr = redisserver.DieWithParent()
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a process to measure: %w", err)
	}
	c.out = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process to measure: %w", err)
	}
	return c, nil
}

// next waits for the child's next sample.
func (c *child) next() (sample, error) {
	var s sample
	err := c.out.Decode(&s)
	if err == nil {
		return s, nil
	}
	if wait := c.cmd.Wait(); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = wait
	}
	return s, fmt.Errorf("it ended without a result: %v\n%s", err, strings.TrimSpace(c.said.String()))
}

// kill ends the child as nothing else does: it cannot say a last word.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // or it has ended already
	_ = c.cmd.Wait()
}

// measure has a child do the job with a server of its own.
func measure(ctx context.Context, j job) (sample, error) {
	s, err := startServer(ctx, j.Log)
	if err != nil {
		return sample{}, err
	}
	defer s.stop()
	j.URL = s.url
	return measureOn(ctx, j)
}

// measureOn has a child do the job with the server that it names.
func measureOn(ctx context.Context, j job) (sample, error) {
	c, err := spawn(ctx, j)
	if err != nil {
		return sample{}, err
	}
	defer c.kill()
	return c.next()
}
