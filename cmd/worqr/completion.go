package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// scripts call the command itself for completions.
var scripts = map[string]string{
	"bash": `_worqr() {
	local IFS=$'\n'
	COMPREPLY=($(worqr complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _worqr worqr
`,
	"zsh": `_worqr() {
	local -a candidates
	candidates=("${(@f)$(worqr complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	candidates=("${(@)candidates:#}")
	if (( ${#candidates} )); then compadd -a candidates; else _files; fi
}
compdef _worqr worqr
`,
	"fish": `complete -c worqr -f -a '(worqr complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

// Run prints the script for a shell.
func (c *completionCommand) Run(out io.Writer) error {
	_, err := io.WriteString(out, scripts[c.Shell])
	return err
}

// A completeCommand is what the scripts call.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints the candidates for the last word.
func (c *completeCommand) Run(ctx context.Context, k *kong.Context, out io.Writer) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	for _, word := range candidates(ctx, k.Model.Node, before, last) {
		if strings.HasPrefix(word, last) && printable(word) == word {
			fmt.Fprintln(out, word) // if the shell is gone, no one needs an answer
		}
	}
	return nil
}

// candidates returns the words that may follow those before.
func candidates(ctx context.Context, app *kong.Node, before []string, last string) (all []string) {
	var command *kong.Node
	if len(before) > 0 {
		for _, n := range app.Leaves(true) {
			if n.Name == before[0] {
				command = n
			}
		}
	}
	switch {
	case command == nil:
		for _, n := range app.Leaves(true) {
			all = append(all, n.Name)
		}
		return all
	case slices.Contains(before, "--"):
		return nil // the arguments of a program
	case strings.HasPrefix(last, "-"):
		for _, flags := range command.AllFlags(true) {
			for _, f := range flags {
				all = append(all, "--"+f.Name)
			}
		}
		return all
	}
	values, many := valuesOf(command, before[1:]), false
	for i, p := range command.Positional {
		if p.Name == "shell" {
			return strings.Split(p.Enum, ",")
		}
		many = many || p.Name == "queue" && (i == values || p.IsSlice() && i <= values)
	}
	if !many {
		return nil
	}
	return queueCandidates(ctx, before)
}

// valuesOf counts the words that are neither flags nor their values.
func valuesOf(command *kong.Node, words []string) (n int) {
	takes := map[string]bool{} // a value, as the next word
	for _, flags := range command.AllFlags(true) {
		for _, f := range flags {
			takes["--"+f.Name] = !f.IsBool()
		}
	}
	for i, word := range words {
		if !strings.HasPrefix(word, "-") && (i == 0 || !takes[words[i-1]]) {
			n++
		}
	}
	return n
}

// patienceOfShells is how long to wait for Redis after the tab key was pressed.
const patienceOfShells = time.Second

// queueCandidates returns the names of the queues, if Redis answers soon.
func queueCandidates(ctx context.Context, before []string) (all []string) {
	ctx, stop := context.WithTimeout(ctx, patienceOfShells)
	defer stop()
	var c queuesCommand
	parser, err := kong.New(&c, kong.Exit(func(int) {}))
	if err != nil {
		return nil
	}
	var flags []string // those that choose the fleet
	for i, word := range before {
		for _, name := range []string{"--redis", "--prefix"} {
			if strings.HasPrefix(word, name+"=") {
				flags = append(flags, word)
			} else if word == name && i+1 < len(before) {
				flags = append(flags, word, before[i+1])
			}
		}
	}
	if _, err := parser.Parse(flags); err != nil {
		return nil
	}
	f, err := c.fleet()
	if err != nil {
		return nil
	}
	defer f.close()
	names, err := f.names(ctx, nil)
	if err != nil {
		return nil
	}
	for _, name := range names {
		all = append(all, string(name))
	}
	return all
}
