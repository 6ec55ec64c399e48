// Mutation changes each check of the Lua scripts in turn, and looks whether a test
// notices. A mutant that no test notices is a check that nobody needs, or that
// nobody tests.
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
	"time"
)

func main() {
	only := flag.String("only", "", "mutants whose names begin so, as step:123 or lib_wake")
	list := flag.Bool("list", false, "name the mutants, and try none")
	verbose := flag.Bool("v", false, "tell of each mutant what noticed it")
	jobs := flag.Int("j", 3, "mutants at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *list, *verbose, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list, verbose bool, jobs int) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/worqr/worqr").Output()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	begin := time.Now()
	s, err := newStand(ctx, strings.TrimSpace(string(root)), dir)
	if err != nil {
		return err
	}
	all, err := s.breed()
	if err != nil {
		return err
	}
	if list {
		for _, m := range all {
			fmt.Println(&m)
		}
		return nil
	}
	if err := s.rehearse(ctx, all); err != nil {
		return err
	}
	fmt.Println("rehearsed after", time.Since(begin))
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := make(chan *mutant)
	killed, survived := 0, 0
	for range jobs {
		wg.Go(func() {
			for m := range next {
				f, err := s.try(ctx, m)
				mu.Lock()
				switch {
				case err != nil:
					fmt.Println(m, err)
				case f.killed:
					killed++
					if verbose {
						fmt.Println("killed  ", m, " by ", f.by)
					}
				default:
					survived++
					fmt.Println("survived", m, f.reached)
				}
				mu.Unlock()
			}
		})
	}
	for i := range all {
		if strings.HasPrefix(all[i].name(), only) {
			next <- &all[i]
		}
	}
	close(next)
	wg.Wait()
	fmt.Println(killed, survived, time.Since(begin))
	return nil
}
