package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// The scripts complete commands, flags and queue names.
func TestCompletion(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "emails", "a")
	s.run(exitWell, "enqueue", "exports", "a")
	fleet := strings.Join(s.args[:4], " ")
	complete := func(line string) string {
		return s.bare("complete", "bash", "worqr "+line, line[strings.LastIndex(line, " ")+1:])
	}
	s.is.Equal(complete("fail"), "failed\nfail-worker\n")
	s.is.Equal(complete("failed --pa"), "--payload\n")
	s.is.Equal(complete("queues "+fleet+" e"), "emails\nexports\n")
	s.is.Equal(complete("pause emails "+fleet+" ex"), "exports\n")
	s.is.Equal(complete("failed "+fleet+" --group ex"), "exports\n")
	s.is.Equal(complete("failed emails "+fleet+" "), "")
	s.is.Equal(complete("failed "+fleet+" --kind "), "failed\nmalformed\nexpired\ncrashed\n")
	s.is.Equal(complete("failed "+fleet+" --reason "), "") // not a queue
	s.is.Equal(complete("failed "+fleet+" -n 5 ex"), "exports\n")
	s.is.Equal(complete("completion "), "bash\nzsh\nfish\n")
	s.is.Equal(complete("work emails -- e"), "")
	s.is.Equal(complete("queues --redis redis://127.0.0.1:1 "), "")
	zsh := append([]string{"complete", "zsh", "pause"}, s.args[:4]...)
	s.is.Equal(s.bare(append(zsh, "em")...), "emails\nexports\n") // zsh chooses, since it knows how "em" is quoted
	s.is.Equal(s.bare("complete", "--", "fail"), "")              // the script of an earlier version runs what it gets
	for program, script := range scripts {
		s.is.Equal(s.bare("completion", program), script)
	}
}

// withShells names the environment variable that, set to 1, makes the test fail if a shell is missing. .ci/run
// sets it.
const withShells = "WORQR_TEST_SHELLS"

// Each shell reads a file first, and prints <ready> before each prompt.
var interactive = map[string]struct {
	start      string
	file, text string
}{
	"bash": {"bash --noprofile --rcfile ../rc -i", "rc", `
		PROMPT_COMMAND='echo "<ready>"' PS2='<more>'
		source <(worqr completion bash)`},
	"zsh": {"zsh -d -i", ".zshrc", `
		precmd() { echo '<ready>' }
		PS2='<more>'
		setopt extended_glob interactive_comments
		autoload -U compinit
		compinit -D -u
		source <(worqr completion zsh)`},
	"fish": {"fish --no-config --init-command 'source ../rc' -i", "rc", `
		function ready --on-event fish_prompt; echo '<ready>'; end
		worqr completion fish | source`},
}

// stub completes like worqr, and otherwise writes its arguments to a file.
const stub = `#!/bin/sh
case $1 in complete | completion) ` + asCommand + `=1 exec "$WORQR_TEST_PROGRAM" "$@" ;; esac
printf '%s\n' "$@" >"$HOME/args"
`

// A keyboard types into a shell.
type keyboard struct {
	*screenful
	home string
}

func newKeyboard(t *testing.T, program string) *keyboard {
	t.Helper()
	how, home := interactive[program], t.TempDir()
	for name, text := range map[string]string{how.file: how.text, "worqr": stub, "work/alpha": "", "work/beta": ""} {
		file := filepath.Join(home, name)
		redistest.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		redistest.Must(t, os.WriteFile(file, []byte(text), 0o700))
	}
	c := exec.Command("sh", "-c", "exec "+how.start)
	c.Dir = filepath.Join(home, "work")
	c.Env = append(os.Environ(), "HOME="+home, "ZDOTDIR="+home, "PATH="+home+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8",
		"REDIS_URL="+redistest.URL(), "WORQR_TEST_PROGRAM="+redistest.Sure(os.Executable())(t))
	y := &keyboard{(&shell{T: t}).attached(c), home}
	y.ready(0)
	return y
}

// ready waits for another prompt.
func (y *keyboard) ready(before int) {
	y.Helper()
	peertest.Eventually(y, "the shell is ready", func() bool { return strings.Count(y.drawn(), "<ready>\r\n") > before })
}

// types types a line, and returns the arguments that worqr got. If the shell wants more lines, there are none.
func (y *keyboard) types(line string) (args []string) {
	y.Helper()
	before, from := strings.Count(y.drawn(), "<ready>\r\n"), len(y.drawn())
	_ = os.Remove(filepath.Join(y.home, "args"))
	y.press(line + "\r")
	peertest.Eventually(y, "the shell is ready, or wants another line", func() bool {
		return strings.Count(y.drawn(), "<ready>\r\n") > before || strings.Contains(y.drawn()[from:], "<more>")
	})
	if strings.Contains(y.drawn()[from:], "<more>") {
		y.press("\x03")
		y.ready(before)
	}
	text, _ := os.ReadFile(filepath.Join(y.home, "args"))
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// hostile are names that shells would run, expand or split, and that aren't to be taken for options.
var hostile = []string{
	"ev;id>ran-1", "ev&id>ran-2", "ev|id>ran-3", "ev$(id>ran-4)", "ev`id>ran-5`", "ev||id>ran-6", "ev>ran-7", "ev<(id>ran-8)", "(id>ran-9)",
	"ev';id>ran-10;'", `ev";id>ran-11;"`, `ev\';id>ran-12;\'`, `ev'$(id>ran-13)'"$(id>ran-14)"`, `$'ev\';id>ran-15'`, "=(id>ran-16)", "<id",
	"*", "?lpha", "[a-z]*", "alp*", "ev$HOME", "$HOME", "$$", "ev:~", "ev:~root", "=ls", "%self", "%1", "!!", "ev!!", "!id", "^ev^id", "#ev", "ev#",
	`ev\`, `ev\\`, `\`, `ev\n`, "ev'", "'", `ev"`, `"`, "ev=a", "=", "ev:a", "ev::", ":", "ev@a", "@a", "ev,a", "a+b", "ev^a", "(", ")", "ev&", "[", "]",
	"ümläut", "日本;語", "ev=~", "ev=$(id>ran-17)", "ev:$(id>ran-18)", "ev:;id>ran-19", "ev@;id>ran-20", "ev:=(id>ran-21)",
}

// refused are names that can't be typed: the library refuses them, a terminal would act on them, or
// they'd be options or, in fish, expanded.
var refused = []string{
	"~", "~root", "--redis=redis://evil", "--prefix=evil", "-x", "-", "--", "ev id>ran-30", "ev\nid>ran-31", "ev\rid>ran-32", "ev\tid", "ev\x1b[2J", "ev\x03", "ev{a,b}", "ev\u202eid", "ev\u00a0id", "ev\u0085",
	"\xff", "",
}

// What a shell completes, it passes on to the command unchanged: whoever chose the names of the queues can't have
// it run, expanded, split or taken for an option.
func TestCompletionInShells(t *testing.T) {
	conn := redistest.Conn(t)
	fill := func(prefix string, queues ...string) string {
		for _, queue := range queues {
			redistest.Do(t, conn, "SADD", keys.NewSpace(prefix).Registry(), queue)
		}
		return prefix
	}
	type typed struct {
		line string
		want []string
	}
	// In bash, neither names that need quotes nor words with quotes are completed.
	quoted := func(c typed) bool {
		return strings.Contains(c.line, "\t") && (strings.ContainsAny(c.line, "'\"\\") || slices.ContainsFunc(c.want, needsQuote.MatchString))
	}
	var all []typed
	for _, name := range hostile {
		prefix := fill(redistest.Prefix(t), name)
		all = append(all, typed{"worqr pause --prefix " + prefix + " \t", []string{"pause", "--prefix", prefix, name}})
	}
	for _, name := range refused {
		prefix := fill(redistest.Prefix(t), name)
		all = append(all, typed{"worqr pause --prefix " + prefix + " \t", []string{"pause", "--prefix", prefix}})
	}
	prefix := redistest.Prefix(t)
	plain := fill(prefix+":1", "emails", "exports", "col:one", "col:two", "ev;id>ran-40", `qu"$(id>ran-41)"`, "same;id>ran-42", "same;id>ran-43", "un:der;id>ran-44")
	flag := "--prefix=" + plain
	for _, c := range []struct{ line, want string }{
		{"em\t", "emails"},
		{"e\t", "e"}, // several begin with it
		{"col\to\t", "col:one"},
		{"col:t\t", "col:two"},
		{`col\:t` + "\t", "col:two"},
		{"'col:t\t", "col:two"},
		{`"col:t` + "\t", "col:two"},
		{"'em\t", "emails"},
		{`"em` + "\t", "emails"},
		{"ev\t", "ev;id>ran-40"},
		{`ev\;` + "\t", "ev;id>ran-40"},
		{`ev\;i` + "\t", "ev;id>ran-40"},
		{"'ev;i\t", "ev;id>ran-40"},
		{`"ev;i` + "\t", "ev;id>ran-40"},
		{"qu\t", `qu"$(id>ran-41)"`},
		{"sam\t", "same;id>ran-4"}, // what they share
		{"un:d\t", "un:der;id>ran-44"},
		{"emails em\t", "emails emails"},
	} {
		for _, choice := range []string{flag, "--prefix " + plain, "--prefix '" + plain + "'", `--prefix="` + plain + `"`} {
			want := append(strings.Fields("pause "+strings.NewReplacer("'", "", `"`, "").Replace(choice)), strings.Fields(c.want)...)
			all = append(all, typed{"worqr pause " + choice + " " + c.line, want})
			if c.line != "em\t" {
				break
			}
		}
	}
	name := fill(prefix+":;$(id>ran-50)", "far")
	all = append(all,
		typed{"worqr pause --prefix='" + name + "' f\t", []string{"pause", "--prefix=" + name, "far"}},
		typed{"worqr vers\t", []string{"version"}},
		typed{"worqr failed " + flag + " em\t --pa\t", []string{"failed", flag, "emails", "--payload"}},
		typed{"worqr failed em\t " + flag, []string{"failed", "em", flag}}, // in another fleet
		typed{"worqr pause " + flag + " --red\t", []string{"pause", flag, "--redis"}},
		typed{"ANY=x worqr pause " + flag + " em\t", []string{"pause", flag, "emails"}},
		typed{"true && worqr pause " + flag + " em\t", []string{"pause", flag, "emails"}},
	)
	// The commands that worqr suggests have the names quoted for each of the shells.
	for _, names := range [][]string{hostile, {"-x"}, {"a", "--redis=redis://evil", `\';id>ran-60;'`, "~root"}} {
		want := append([]string{"resume", "--prefix", "p"}, names...)
		if len(names) < 9 {
			want = slices.Insert(want, 3, "--")
		}
		all = append(all, typed{(&target{Prefix: "p"}).command("resume QUEUE", names...), want})
	}
	for program := range interactive {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(program); err != nil {
				if os.Getenv(withShells) == "1" {
					t.Fatalf("%v; install %s", err, program)
				}
				t.Skipf("needs %s", program)
			}
			y := newKeyboard(t, program)
			defer func() {
				for _, f := range redistest.Sure(os.ReadDir(filepath.Join(y.home, "work")))(t) {
					if f.Name() != "alpha" && f.Name() != "beta" {
						t.Errorf("a command has run and written %s", f.Name())
					}
				}
			}()
			for _, c := range all {
				if program == "bash" && quoted(c) {
					if !strings.HasSuffix(c.line, " \t") {
						continue
					}
					c.want = slices.DeleteFunc(slices.Clone(c.want), needsQuote.MatchString)
				}
				if got := y.types(c.line); !slices.Equal(got, c.want) {
					t.Errorf("%q: worqr got %q, want %q", c.line, got, c.want)
				}
			}
			y.press("exit 0\r")
		})
	}
}
