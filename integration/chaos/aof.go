package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A command is a write command, by name and arguments, as Redis wrote it to its AOF.
type command []string

// readCommits reads an AOF and yields its commits in order. A commit is a single command, or all
// commands of one script. An incomplete last commit is skipped.
func readCommits(paths []string, yield func([]command) error) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("read the AOF: %w", err)
		}
		err = commits(bufio.NewReaderSize(f, 1<<20), yield)
		_ = f.Close() // it was only read
		if err != nil {
			return fmt.Errorf("read the AOF %s: %w", path, err)
		}
	}
	return nil
}

func commits(r *bufio.Reader, yield func([]command) error) error {
	var open []command
	within := false
	for {
		c, err := readCommand(r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch c[0] = strings.ToUpper(c[0]); c[0] {
		case "SELECT":
		case "MULTI":
			open, within = nil, true
		case "EXEC":
			if err := yield(open); err != nil {
				return err
			}
			open, within = nil, false
		default:
			if within {
				open = append(open, c)
			} else if err := yield([]command{c}); err != nil {
				return err
			}
		}
	}
}

// readCommand reads one command. It is strict: anything unknown comes from a later version of
// Redis, and the checks that follow couldn't be trusted.
func readCommand(r *bufio.Reader) (command, error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	if n < 1 || n > 1<<20 {
		return nil, fmt.Errorf("a command of %d words", n)
	}
	c := make(command, n)
	for i := range c {
		size, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		c[i] = string(word[:size])
	}
	return c, nil
}

func readLength(r *bufio.Reader, mark byte) (int, error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if mark == '*' && strings.HasPrefix(line, "#") {
			continue // a timestamp
		}
		if line[0] != mark {
			return 0, fmt.Errorf("%q where a %q was expected", line, mark)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
}
