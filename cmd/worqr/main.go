// Command worqr operates worqr queues from a shell: it shows the state of a fleet, finds problems, and fixes
// them. It uses the Redis at REDIS_URL, while the fleet runs. See "worqr --help" and docs/cli.md. The
// demo needs nothing but Go. In a clone of the repository:
//
//	go run ./cmd/worqr demo
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redisconn"
)

type cli struct {
	Top       topCommand       `cmd:"" group:"look" help:"Watch queues and workers live, with rates; pause and requeue with a keystroke."`
	Queues    queuesCommand    `cmd:"" group:"look" help:"List queues and their counts."`
	Workers   workersCommand   `cmd:"" group:"look" help:"List workers, the running peers."`
	Running   runningCommand   `cmd:"" group:"look" help:"List running tasks; --older 10m shows those that have run for longer."`
	Waiting   waitingCommand   `cmd:"" group:"look" help:"List the waiting tasks of a queue."`
	Scheduled scheduledCommand `cmd:"" group:"look" help:"List the schedule of a queue: tasks with a time, and retries."`
	Recurring recurringCommand `cmd:"" group:"look" help:"List recurring tasks: their next times, and how the last ones ended."`
	Failed    failedCommand    `cmd:"" group:"look" help:"List the failed tasks of a queue, by kind, reason, payload, header and time; requeue or delete what matches."`
	Result    resultCommand    `cmd:"" group:"look" help:"Show how a task ended, and its result, if it was enqueued with --keep-result."`
	Wait      waitCommand      `cmd:"" group:"look" help:"Wait until a task ends, and show its result."`
	Stats     statsCommand     `cmd:"" group:"look" help:"Add up the counts of the fleet."`
	Watch     watchCommand     `cmd:"" group:"look" help:"Print events as JSON lines."`
	Explain   explainCommand   `cmd:"" group:"look" help:"Show where a task is and why it isn't running."`
	Check     checkCommand     `cmd:"" group:"look" help:"Check a fleet's keys in Redis for damage, stuck tasks and risky settings. It's safe while the fleet is running."`

	Enqueue    enqueueCommand    `cmd:"" group:"act" help:"Enqueue tasks: arguments, or lines of standard input."`
	RunNow     runNowCommand     `cmd:"" group:"act" help:"Run a recurring task now."`
	Cancel     cancelCommand     `cmd:"" group:"act" help:"Cancel a task wherever it is, and wait until it has stopped."`
	Remove     removeCommand     `cmd:"" group:"act" help:"Remove waiting tasks by key."`
	Requeue    requeueCommand    `cmd:"" group:"act" help:"Put failed tasks back into their queue."`
	Pause      pauseCommand      `cmd:"" group:"act" help:"Keep tasks of queues from starting."`
	Resume     resumeCommand     `cmd:"" group:"act" help:"End a pause."`
	Drain      drainCommand      `cmd:"" group:"act" help:"Pause queues and wait until none of their tasks run."`
	Delete     deleteCommand     `cmd:"" group:"act" help:"Delete all waiting tasks of a queue."`
	FailWorker failWorkerCommand `cmd:"" group:"act" help:"Evict a worker and return its tasks."`
	Sweep      sweepCommand      `cmd:"" group:"act" help:"Evict workers whose lease has expired, if no peer is left to do it."`

	Work       workCommand       `cmd:"" group:"run" help:"Run a program for each task of a queue."`
	Bench      benchCommand      `cmd:"" group:"run" help:"Measure worqr's throughput and latency on your Redis."`
	Demo       demoCommand       `cmd:"" group:"run" help:"Watch three peers at work: one is killed, tasks fail, one is canceled, and nothing is lost."`
	Serve      serveCommand      `cmd:"" group:"run" help:"Serve the dashboard."`
	Completion completionCommand `cmd:"" group:"run" help:"Print the completion script for bash, zsh or fish."`
	Version    versionCommand    `cmd:"" group:"run" help:"Print the version."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version, and exit."`

	Complete completeCommand `cmd:"" hidden:"" help:"Answer a completion script."`
	Peer     peerCommand     `cmd:"" hidden:"" help:"Be one of the demo's peers."`
}

// manual is the introduction in the command's help.
const manual = `A peer-to-peer work queue on Redis: look at a fleet, act on it, and run tasks.

The commands use the Redis at $$REDIS_URL or --redis: a single server, redis+sentinel:// or redis+cluster://. Each command has its own --help. With --json, most print JSON, one object per line. Names, payloads and keys are taken byte for byte. Control characters in stored data are escaped.

Exit status: 0: it worked and all is well; 1: the output says what is wrong, or there was nothing to do; 2: incorrect usage, or the command failed.`

type versionCommand struct{ form }

// Run prints the version of the library; the command is released with it.
func (c versionCommand) Run(out io.Writer) error {
	v := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
	}{worqr.Version, runtime.Version()}
	return c.tell(out, v, "worqr %s", v.Version)
}

// errTold ends a command whose output has described the problem.
var errTold = errors.New("something is wrong")

// toldIf returns errTold if something is wrong, unless printing that has failed.
func toldIf(wrong bool, err error) error {
	if err == nil && wrong {
		return errTold
	}
	return err
}

// A nothing error reports that there is nothing to act on, and how to find what exists.
type nothing string

func (n nothing) Error() string { return string(n) }

// advice returns what to do about an error that doesn't have advice itself.
func advice(err error) string {
	if redisconn.BadLogin(err) {
		return "\nRedis refuses the login: check the user and the password of REDIS_URL or --redis"
	}
	return grant(err)
}

// grant returns advice to grant the rule of a worker, if Redis denies a permission and the error
// doesn't name a rule yet: a check needs another one.
func grant(err error) string {
	if (errors.Is(err, worqr.ErrDenied) || redisconn.Denied(err)) && !strings.Contains(err.Error(), "docs/security.md") {
		return "; grant it the rule \"Worker\" in docs/security.md"
	}
	return ""
}

// inOneLine returns the text of an error. Joined errors are on one line, and what several of them
// say is there once.
func inOneLine(err error) string {
	var all []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !slices.ContainsFunc(all, func(before string) bool { return strings.HasSuffix(before, line) }) {
			all = append(all, line)
		}
	}
	for i := range all[:len(all)-1] {
		all[i] = strings.TrimSuffix(all[i], ".")
	}
	return strings.Join(all, "; ")
}

// The exit statuses.
const (
	exitWell   = 0
	exitUnwell = 1 // see the output
	exitFailed = 2 // it was used incorrectly, or failed
)

// graceOfSignals is how long a second signal is ignored: supervisors such as timeout send one to the program and one to
// its process group.
const graceOfSignals = time.Second

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is all of main, so that tests and their binary can be the command too.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(graceOfSignals, stop) }) // then a second Ctrl-C ends it immediately
	return runUntil(ctx, args, in, out, errs)
}

// runUntil is run, interrupted by the end of ctx instead of a signal.
func runUntil(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	parser := kong.Must(&cli{},
		kong.Name("worqr"),
		kong.Description(manual),
		kong.ExplicitGroups([]kong.Group{{Key: "look", Title: "Look:"}, {Key: "act", Title: "Act:"}, {Key: "run", Title: "Run:"}}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.PostBuild(withDetails),
		kong.Writers(out, errs),
		kong.Vars{"version": "worqr " + worqr.Version},
		kong.KindMapper(reflect.String, asGiven),
		kong.KindMapper(reflect.Int, signed(0)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), signed(time.Duration(0))))
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	command, err := parser.Parse(args)
	if err != nil {
		said, see := misuse(err, args), "; see"
		if strings.HasSuffix(said, "?") {
			see = " See"
		}
		fmt.Fprintf(errs, "worqr: %s%s %s --help\n", said, see, meant(err))
		return exitFailed
	}

	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(&console{in, out, errs})
	command.BindTo(out, (*io.Writer)(nil))
	err = command.Run()
	_, none := errors.AsType[nothing](err)
	switch {
	case err == nil:
		return exitWell
	case errors.Is(err, errTold):
		return exitUnwell
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(errs, "worqr: "+printable(interrupted(err)))
		return exitFailed
	}
	fmt.Fprintln(errs, "worqr:", printable(strings.TrimPrefix(inOneLine(err), "worqr: "))+advice(err))
	if none {
		return exitUnwell
	}
	return exitFailed
}
