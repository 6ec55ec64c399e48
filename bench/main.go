// Bench compares this library with asynq and with the bare Redis commands that any queue of its
// layout needs, and writes the results as tables. It starts a separate Redis for each
// measurement.
//
//	go run ./bench
//
// The flags select parts of it. Bench replaces only the text between the two marks in
// docs/performance.md; the rest is written by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redisserver"
)

func main() {
	if j, given := child.Given[job](); given {
		os.Exit(childMain(j))
	}
	os.Exit(run(os.Args[1:]))
}

// A request is what the command line requests.
type request struct {
	scale
	scenarios []string // empty: all
	rounds    int
	patient   bool
	together  bool // all steps of a scenario concurrently: only to check that it works
	out       string
	log       io.Writer
	command   string // the command that repeats it
}

// run is main without the exit, so that deferred functions run.
func run(args []string) int {
	r := request{log: os.Stderr, command: strings.Join(append([]string{"go run ./bench"}, args...), " ")}
	if len(args) == 0 {
		r.command = "make bench"
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("run", "", "measure only these `scenarios`, separated by commas: "+strings.Join(scenarios(), ", "))
	flags.IntVar(&r.rounds, "rounds", 3, "how many times to repeat each measurement")
	flags.BoolVar(&r.short, "short", false, "use few tasks and a few seconds, only to check that it works")
	flags.BoolVar(&r.patient, "patient", true, "wait two minutes for asynq to notice a killed worker; =false skips that")
	flags.StringVar(&r.out, "out", "docs", "`directory` of performance.md, whose text between the marks is replaced")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if *only != "" {
		r.scenarios = strings.Split(*only, ",")
	}
	if err := r.check(flags); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := r.bench(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// check rejects combinations of flags whose measurements would be useless.
func (r *request) check(flags *flag.FlagSet) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected %q; scenarios are chosen with -run", flags.Arg(0))
	case r.rounds < 1:
		return fmt.Errorf("-rounds is %d; it must be at least 1", r.rounds)
	case (r.short || len(r.scenarios) > 0) && !given["out"]:
		return errors.New("a partial run would replace the full report; name another directory with -out")
	}
	return os.MkdirAll(r.out, 0o755)
}

// bench measures, and writes the results. If a measurement fails, its result is left out, and bench
// returns the error at the end.
func (r *request) bench(ctx context.Context) error {
	if _, err := redisserver.Program(); err != nil {
		return err
	}
	chosen, err := r.chosen()
	if err != nil {
		return err
	}
	began := time.Now()
	found, failed := r.results(ctx, chosen)
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; %s is unchanged", r.out)
	}
	return errors.Join(failed, r.write(ctx, chosen, found, began))
}

// results measures all scenarios.
func (r *request) results(ctx context.Context, chosen []scenario) (results, error) {
	found := results{}
	var failed []error
	for _, p := range chosen {
		failed = append(failed, r.measure(ctx, p, found))
	}
	return found, errors.Join(failed...)
}

// write replaces the generated part of performance.md.
func (r *request) write(ctx context.Context, chosen []scenario, found results, began time.Time) error {
	text := report{results: found, plan: chosen, request: r, began: began}
	file := filepath.Join(r.out, "performance.md")
	if err := replaceBetweenMarks(file, text.markdown(ctx)); err != nil {
		return err
	}
	fmt.Fprintf(r.log, "wrote %s after %v\n", file, time.Since(began).Round(time.Second))
	return nil
}

// scenarios returns the names of all scenarios.
func scenarios() (names []string) {
	for _, p := range plan(scale{}, true) {
		names = append(names, p.name)
	}
	return names
}

// chosen returns the requested scenarios.
func (r *request) chosen() ([]scenario, error) {
	var chosen []scenario
	for _, p := range plan(r.scale, r.patient) {
		if len(r.scenarios) == 0 || slices.Contains(r.scenarios, p.name) {
			chosen = append(chosen, p)
		}
	}
	for _, name := range r.scenarios {
		if names := scenarios(); !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}
