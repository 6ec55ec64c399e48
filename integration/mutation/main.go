// Mutation changes each check of the Lua scripts in turn, and expects a test to fail. A surviving mutant is a
// check that isn't needed, or that isn't tested.
//
//	go run ./integration/mutation                  all of them
//	go run ./integration/mutation -only step:123   those of one line
//	go run ./integration/mutation -without TestX   those that no other test finds
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/worqr/worqr/integration/mutation/mutant"
)

func main() {
	only := flag.String("only", "", "try only the mutants of a file, a line, or a class there, such as lib_wake or step:123; separate several with commas")
	list := flag.Bool("list", false, "list the mutants without trying them")
	verbose := flag.Bool("v", false, "report the test that kills each mutant")
	thorough := flag.Bool("thorough", false, "also try all tests on the mutants that are known to survive")
	without := flag.String("without", "", "leave out the tests that match a pattern: the survivors are the mutants that only they find")
	jobs := flag.Int("j", 3, "mutants at a time")
	flag.Parse()
	ctx, stop := untilSignal(context.Background())
	defer stop()
	ok, err := run(ctx, *jobs, *list, *without, &report{only: strings.Split(*only, ","), verbose: *verbose, thorough: *thorough})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// untilSignal returns a context that ends with a signal, or with the parent of this process: "go run" doesn't
// pass a SIGTERM on. A second signal ends the process at once.
func untilSignal(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	parent := os.Getppid()
	go func() {
		for ctx.Err() == nil && os.Getppid() == parent {
			time.Sleep(time.Second) // polling, not synchronization
		}
		stop()
	}()
	return ctx, stop
}

func run(ctx context.Context, jobs int, list bool, without string, r *report) (ok bool, err error) {
	begin := time.Now()
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/worqr/worqr").Output()
	if err != nil {
		return false, fmt.Errorf("go list: %w", err)
	}
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return false, err
	}
	defer remove(dir)
	s, err := newStand(ctx, strings.TrimSpace(string(root)), dir)
	if err != nil {
		return false, err
	}
	all := s.scripts.Mutants
	for _, w := range s.scripts.Wrong {
		r.wrong++
		fmt.Println("a mark:", w)
	}
	if list {
		for _, m := range all {
			if r.asked(&m) {
				fmt.Println(&m)
			}
		}
		return true, nil
	}
	if err := s.rehearse(ctx, all, without); err != nil {
		return false, err
	}
	var wg sync.WaitGroup
	next := make(chan *mutant.Mutant)
	for range jobs {
		wg.Go(func() {
			for m := range next {
				r.judge(ctx, s, m)
			}
		})
	}
	for i := range all {
		if r.asked(&all[i]) && ctx.Err() == nil {
			next <- &all[i]
		}
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	fmt.Printf("%d mutants: %d killed, %d survive for the reasons in their marks; %d wrong; %s\n",
		r.killed+r.explained+r.wrong, r.killed, r.explained, r.wrong, time.Since(begin).Round(time.Second))
	return r.wrong == 0, nil
}
