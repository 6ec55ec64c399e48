package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// scripts call the command itself for completions, and evaluate nothing that it prints. Zsh and fish quote a value
// when they insert it. Bash inserts it unchanged, and splits words at colons and equals signs, so for bash the
// command parses the line, and completes only what needs no quotes.
var scripts = map[string]string{
	"bash": `_worqr() {
	local value
	COMPREPLY=()
	while IFS= read -r value; do
		COMPREPLY+=("$value")
	done < <(worqr complete bash "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
}
complete -o default -F _worqr worqr
`,
	"zsh": `_worqr() {
	local -a values
	values=("${(@f)$(worqr complete zsh "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
	values=("${(@)values:#}")
	compadd -a values || _files
}
compdef _worqr worqr
`,
	"fish": `complete -c worqr -f -a '(worqr complete fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

func (c *completionCommand) Run(out io.Writer) error {
	_, err := io.WriteString(out, scripts[c.Shell])
	return err
}

// A completeCommand is what the scripts call. Zsh and fish give the words before the cursor, and the word at the
// cursor as it's typed; bash gives the line up to the cursor, and the end of it that will be replaced.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints the candidates for the last word. Zsh and fish choose those that begin with it.
func (c *completeCommand) Run(ctx context.Context, k *kong.Context, out io.Writer) error {
	if len(c.Words) < 2 {
		return nil
	}
	last := len(c.Words) - 1
	before, typed := c.Words[1:last], c.Words[last]
	inserted := func(value string) (string, bool) { return value, true }
	switch c.Words[0] {
	case "zsh", "fish":
	case "bash":
		words := strings.Fields(c.Words[1] + "\x00") // the last word may be empty
		if len(words) < 2 {
			return nil
		}
		end := len(words) - 1
		before, typed = words[1:end], strings.TrimSuffix(words[end], "\x00")
		kept, _ := strings.CutSuffix(typed, c.Words[last]) // by bash, which replaces the rest
		inserted = func(value string) (string, bool) {
			return strings.TrimPrefix(value, kept), strings.HasPrefix(value, typed) && !needsQuote.MatchString(value)
		}
	default:
		return nil // the script of an earlier version, which didn't quote
	}
	for _, value := range candidates(ctx, k.Model.Node, before, typed) {
		if text, ok := inserted(value); ok && printable(value) == value {
			fmt.Fprintln(out, text) // if the shell is gone, no one needs an answer
		}
	}
	return nil
}

var needsQuote = regexp.MustCompile(`[^A-Za-z0-9_./:@%+,=\x{80}-\x{10ffff}-]`)

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
	flags := withValue(command)
	if f := flags[before[len(before)-1]]; f != nil {
		return slices.DeleteFunc(strings.Split(f.Enum, ","), func(value string) bool { return value == "" })
	}
	values, many := valuesOf(flags, before[1:]), false
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

// withValue returns the flags that take a value, by how they're written.
func withValue(command *kong.Node) map[string]*kong.Flag {
	all := map[string]*kong.Flag{}
	for _, flags := range command.AllFlags(true) {
		for _, f := range flags {
			if !f.IsBool() {
				all["--"+f.Name], all["-"+string(f.Short)] = f, f
			}
		}
	}
	return all
}

// valuesOf counts the words that are neither flags nor their values.
func valuesOf(flags map[string]*kong.Flag, words []string) (n int) {
	for i, word := range words {
		if !strings.HasPrefix(word, "-") && (i == 0 || flags[words[i-1]] == nil) {
			n++
		}
	}
	return n
}

// patienceOfShells is how long to wait for Redis after the tab key was pressed.
var patienceOfShells = time.Second

// queueCandidates returns the names of the queues, if Redis answers soon.
func queueCandidates(ctx context.Context, before []string) (all []string) {
	ctx, stop := context.WithTimeout(ctx, patienceOfShells)
	defer stop()
	var c target
	parser, err := kong.New(&c, kong.Exit(func(int) {}))
	if err != nil {
		return nil
	}
	var flags []string // those that choose the fleet
	for i, word := range before {
		switch name, _, whole := strings.Cut(word, "="); {
		case name != "--redis" && name != "--prefix":
		case whole:
			flags = append(flags, word)
		case i+1 < len(before):
			flags = append(flags, word, before[i+1])
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
	names, _ := f.names(ctx, nil)
	for _, name := range names {
		if !strings.HasPrefix(string(name), "-") && !strings.HasPrefix(string(name), "~") { // it would be an option, or expanded by fish
			all = append(all, string(name))
		}
	}
	return all
}
