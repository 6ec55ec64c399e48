// Package calls reads calls of scripts, as they are sent, with the names that the headers of the scripts have for
// their arguments.
package calls

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/store"
)

// A Call is a call of a script.
type Call struct {
	Verb string
	Keys []string
	Args []string
}

// Parse reads a command: its name and its arguments. It's false if that calls no script.
func Parse(words []string) (c Call, ok bool) {
	if len(words) < 3 {
		return c, false
	}
	switch digest := words[1]; words[0] {
	case "EVAL":
		c.Verb = peertest.VerbOf(store.DigestOf([]byte(digest)))
	case "EVALSHA":
		c.Verb = peertest.VerbOf(digest)
	}
	n, err := strconv.Atoi(words[2])
	if c.Verb == "" || err != nil || 3+n > len(words) {
		return c, false
	}
	c.Keys, c.Args = words[3:3+n], words[3+n:]
	return c, true
}

// forms has the names of the arguments, by verb.
var forms = func() map[string][]string {
	all := map[string][]string{}
	argument := regexp.MustCompile(`(?m)^-- ARGV\[(\d+)\] +(\w+(?: \w+)?)  `)
	for _, v := range store.Verbs() {
		byNumber := map[int]string{} // fragments stand behind the header, and have the first ones
		for _, m := range argument.FindAllStringSubmatch(v.Source(), -1) {
			byNumber[int(number(m[1]))] = m[2]
		}
		for n := 1; byNumber[n] != ""; n++ {
			all[v.Name] = append(all[v.Name], byNumber[n])
		}
	}
	return all
}()

// Arg returns the argument with a name; "" if there is none.
func (c Call) Arg(name string) string {
	i := slices.Index(forms[c.Verb], name)
	if i < 0 {
		panic(c.Verb + " has no argument " + name)
	}
	if i >= len(c.Args) {
		return ""
	}
	return c.Args[i]
}

// Int returns the argument with a name, which is a number.
func (c Call) Int(name string) int64 { return number(c.Arg(name)) }

// Rest returns the arguments that have no names of their own.
func (c Call) Rest() []string { return c.Args[min(len(forms[c.Verb]), len(c.Args)):] }

// An End is one end of an attempt.
type End struct {
	Attempt  string
	Token    int64
	Identity string // "" if it's plain
	Verb     store.Ending
	Delay    int64 // ms
	Text     string
}

// Ends returns the ends that a call of finish has, in the order in which the worker had decided them, but the plain
// ones first.
func (c Call) Ends() (all []End) {
	if c.Verb != "finish" {
		return nil
	}
	rest := c.Rest()
	for range c.Int("plain") {
		all, rest = append(all, End{Attempt: rest[0], Token: number(rest[1]), Verb: store.Done}), rest[2:]
	}
	for e := range slices.Chunk(rest, 6) {
		all = append(all, End{e[0], number(e[1]), e[2], store.Ending(e[3]), number(e[4]), e[5]})
	}
	return all
}

// Tasks returns what a call adds.
func (c Call) Tasks() (all []Task) {
	if c.Verb != "add" {
		return nil
	}
	for t := range slices.Chunk(c.Rest(), 5) {
		how := strings.Split(t[2], ":")
		window, nonce, _ := strings.Cut(t[3], ":")
		all = append(all, Task{t[0], number(t[1]), how[0], how[1] == "1", how[2] == "1", nonce, number(window), t[4]})
	}
	return all
}

// A Task is one of a call of add. Times are in ms.
type Task struct {
	Name         string
	At           int64
	Rule         string
	Keep, Counts bool
	Nonce        string
	Window       int64
	Record       string
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n
}
