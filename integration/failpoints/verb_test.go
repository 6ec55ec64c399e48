package failpoints_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/store"
)

const scriptDir = "../../internal/store"

var uses = regexp.MustCompile(`(?m)^-- Uses (lib_\w+(?:, lib_\w+)*)\.$`)

// scripts are the sources of the verbs, as they are sent, by name.
func scripts() (map[string]string, error) {
	files, err := filepath.Glob(scriptDir + "/*.lua")
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no scripts in %s: %w", scriptDir, err)
	}
	texts := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		texts[strings.TrimSuffix(filepath.Base(f), ".lua")] = string(text)
	}
	sources := map[string]string{}
	for name, text := range texts {
		if strings.HasPrefix(name, "lib_") {
			continue
		}
		if m := uses.FindStringSubmatch(text); m != nil {
			parts := strings.Split(m[1], ", ")
			for _, lib := range slices.Backward(parts) {
				text = texts[lib] + text
			}
		}
		sources[name] = text
	}
	return sources, nil
}

// teach has the server know every script, so that no call is refused for that.
// It fails if a digest is another one than what the library sends: see verbs.
func teach(c redis.Conn) error {
	sources, err := scripts()
	if err != nil {
		return err
	}
	for name, src := range sources {
		if _, err := c.Do("SCRIPT", "LOAD", src); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// digests are the names of the verbs by the digest of their scripts.
func digests() (map[string]string, error) {
	sources, err := scripts()
	names := map[string]string{}
	for name, src := range sources {
		sum := sha1.Sum([]byte(src))
		names[hex.EncodeToString(sum[:])] = name
	}
	return names, err
}

// A command is one as it is sent: its name and its arguments.
type command []string

func newCommand(name string, args []any) command {
	c := command{name}
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			c = append(c, string(b))
		} else {
			c = append(c, fmt.Sprint(a))
		}
	}
	return c
}

// args are the arguments as redigo takes them.
func (c command) args() []any {
	all := make([]any, len(c)-1)
	for i, a := range c[1:] {
		all[i] = []byte(a)
	}
	return all
}

// calls reports whether the command is a call of that name: the name of a script;
// of step with what the round carries, such as step:finish; of enlist with the list,
// such as enlist:registry; or of a plain command.
func (c command) calls(name string, verbs map[string]string) bool {
	if c[0] != "EVALSHA" {
		return strings.EqualFold(c[0], name)
	}
	verb := verbs[c[1]]
	if verb == "" {
		panic("an unknown script was called: " + c[1])
	}
	keys, _ := strconv.Atoi(c[2]) // a number
	first, argv := c[3:3+keys], c[3+keys:]
	script, part, _ := strings.Cut(name, ":")
	switch {
	case verb != script:
		return false
	case verb == "step" && part != "":
		return carries(argv, part)
	case verb == "enlist":
		return strings.HasSuffix(first[0], ":"+part)
	}
	return true
}

// carries reports whether a round has something of a kind to say. The arguments
// are listed at the top of step.lua.
func carries(argv []string, kind string) bool {
	number := func(i int) int { n, _ := strconv.Atoi(argv[i-1]); return n }
	outcomes, ends, stopping, heard := number(18), number(20), number(21), number(22)
	said := store.StepFixed + store.StepOutcome*outcomes + 2*ends // where it is told up to which cancel the worker has said what runs
	switch kind {
	case "ack":
		return number(said+1) > 0
	case "start":
		return len(argv) > said+1+2*stopping+heard
	case "finish":
		if ends > 0 {
			return true
		}
	}
	for i := range outcomes {
		if argv[store.StepFixed+store.StepOutcome*i+2] == kind {
			return true
		}
	}
	return false
}
