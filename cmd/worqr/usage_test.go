package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

// Errors don't repeat wrong arguments.
func TestArgumentsAreSecret(t *testing.T) {
	t.Parallel()
	url := "redis://:" + canary + "@host"
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{url}, "unexpected argument 1 (not shown, since it may be secret), where a command was expected; see worqr --help"},
		{[]string{"check", url}, "unexpected argument 2 (not shown, since it may be secret); see worqr check --help"},
		{[]string{"workers", "--prefix", "p", url}, "unexpected argument 4"},
		{[]string{"explain", "q", "p", url}, "unexpected argument 4"},
		{[]string{"explain", url}, "not a URL"},
		{[]string{"explain", "a " + canary}, "not a valid queue name"},
		{[]string{"explain", "q", "--key", canary, canary}, "expected a payload or --key, not both"},
		{[]string{"check", "--dry-run"}, "unknown flag --dry-run; see worqr check --help"},
		{[]string{"check", "--max-runs=" + canary}, "unknown flag --max-runs; see worqr check --help"},
		{[]string{"check", "--" + canary + "7"}, "unexpected argument 2"},
		{[]string{"check", "--" + canary + "7=" + url}, "unexpected argument 2"},
		{[]string{"check", "-" + canary}, "invalid arguments"},
		{[]string{"check", "--lease", canary}, "the value of --lease is not valid; write a duration such as"},
		{[]string{"check", "--lease=" + url}, "the value of --lease is not valid"},
		{[]string{"check", "--repair=" + canary}, "not"},
		{[]string{"check", "--repair"}, "--lease"}, // with a shorter one, live workers may be evicted
		{[]string{"check", "--prefix", canary + "{"}, "the value of --prefix is not valid"},
		{[]string{"queues", "--redis", url + "%zz"}, "the host is invalid"},
		{[]string{"queus"}, "where a command was expected; did you mean queues? See worqr --help"},
		{[]string{"queus", canary}, "did you mean queues?"},
		{[]string{"pauze"}, "did you mean pause?"},
		{[]string{"res"}, "did you mean result or resume?"},
		{[]string{"re"}, "where a command was expected; see worqr --help"}, // there are too many
		{[]string{""}, "where a command was expected; see worqr --help"},
		{[]string{canary + `, did you mean "queues"`}, "where a command was expected; see worqr --help"},
		{[]string{"enqueue", "q", "p", "--at", canary}, "the value of --at is not valid; write a time such as 2026-01-31T09:00:00Z; see worqr enqueue --help"},
		{[]string{"failed", "q", "--kind", canary}, "the value of --kind is not valid; it must be failed, malformed, expired or crashed; see worqr failed --help"},
		{[]string{"failed", "q", "--kind=" + canary}, "it must be failed, malformed, expired or crashed"},
		{[]string{"failed", "q", "--reason", "(" + canary}, "the value of --reason is not valid; it isn't a regular expression (RE2)"},
		{[]string{"completion", canary}, "the value of <shell> is not valid; it must be bash, zsh or fish; see worqr completion --help"},
		{[]string{"check", "--max-waiting=-1"}, "the value of --max-waiting is not valid; write a whole number of at least 0; see worqr check --help"},
		{[]string{"check", "--max-retrying", "-1"}, "the value of --max-retrying is not valid; write a whole number of at least 0"},
		{[]string{"check", "--max-failed=-1"}, "the value of --max-failed is not valid; write a whole number of at least 0"},
		{[]string{"enqueue", "q", "p", "--max-retries=-1"}, "the value of --max-retries is not valid; write a whole number of at least 0"},
		{[]string{"work", "q", "--max-retries=-1", "--", "true"}, "the value of --max-retries is not valid; write a whole number of at least 0"},
		{[]string{"work", "q", "--drain=-1s", "--", "true"}, "--drain can't be negative"},
		{[]string{"top", "--every", "1ms"}, "--every must be at least 100ms; see worqr top --help"},
		{[]string{"running", "--older=-5m"}, "the value of --older is not valid; write a duration such as"},
		{[]string{"tasks", "q", "--limit=-3"}, "the value of --limit is not valid"},
		{[]string{"watch", "--events=-3"}, "the value of --events is not valid"},
		{[]string{"cancel", "q", "p", "--wait=-1s"}, "--wait may not be negative"},
		{[]string{"failed", "q", "--since", "2d"}, "the value of --since is not valid; days aren't a unit: write 48h"},
		{[]string{"failed", "q", "-n", canary}, "the value of --limit is not valid; write a whole number of at least 0"},
		{[]string{"enqueue", "q", "p", "--keep-result", "1ms"}, "--keep-result must be from 1s to 30 days"},
		{[]string{"enqueue", "q", "p", "--keep-result", "721h"}, "--keep-result must be from 1s to 30 days"},
		{[]string{"check", "--redis", "http://:" + canary + "@host"}, "doesn't begin with redis://"},
		// Neither bytes that aren't UTF-8 nor the library's defaults are mistaken for anything
		// else.
		{[]string{"pause", "q" + raw}, "not a valid queue name"},
		{[]string{"failed", "q", "--reason", raw}, "--reason"},
		{[]string{"enqueue", "q", "a", "--header", raw}, "--header is not valid; write NAME=VALUE"},
		{[]string{"queues", "--lease", "0s"}, "is not valid"},
		{[]string{"queues", "--lease", "-1s"}, "is not valid"},
		{[]string{"queues", "--lease="}, "is not valid"},
		{[]string{"queues", "--prefix", ""}, "is not valid"},
		{[]string{"queues", "--prefix="}, "is not valid"},
		// Nor is an empty variable of a script: the command would do more, or wait forever.
		{[]string{"enqueue", "q", "p", "--key", ""}, "the value of --key is not valid; it's empty"},
		{[]string{"enqueue", "q", "p", "--once="}, "the value of --once is not valid; it's empty"},
		{[]string{"failed", "q", "--delete", "--since", "0m"}, "the value of --since is not valid; write a duration such as"},
		{[]string{"failed", "q", "--since=-1h"}, "the value of --since is not valid"},
		{[]string{"drain", "q", "--timeout", "0s"}, "the value of --timeout is not valid"},
		{[]string{"wait", "q", "k", "--timeout=-1s"}, "the value of --timeout is not valid"},
	} {
		out, status := command(t, "", c.args...)
		if status != exitFailed || !strings.Contains(out, c.says) {
			t.Errorf("%q: exit status %d, want %q:\n%s", c.args, status, c.says, out)
		}
	}
}

// Top shows where its Redis is, but not the login.
func TestAddress(t *testing.T) {
	is := redistest.Parallel(t)
	for given, want := range map[string]string{
		"redis://" + canary + "@host":                  "redis://host",
		"redis://" + canary + "@host:6379/2":           "redis://host:6379/2",
		"rediss://ann:" + canary + "@host?x=" + canary: "rediss://host",
		"redis+sentinel://" + canary + "@a,b:1/main":   "redis+sentinel://a,b:1/main",
		"redis+cluster://" + canary + "@a,b:2":         "redis+cluster://a,b:2",
		"unix://" + canary + "@/run/redis.sock?db=1":   "unix:///run/redis.sock",
	} {
		is.Equal(addressOf(given), want)
	}
}

// Help is ASCII: not every terminal shows curly quotes.
func TestHelp(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	is.New(t).NoErr(err)
	names := []string{""}
	for _, c := range commands() {
		names = append(names, c.name)
	}
	for _, command := range names {
		c := exec.Command(program, append(strings.Fields(command), "--help")...)
		c.Env = append(os.Environ(), asCommand+"=1")
		out, err := c.CombinedOutput()
		if err != nil || len(out) == 0 {
			t.Errorf("%s: %v:\n%s", command, err, out)
		}
		for _, r := range string(out) {
			if r > unicode.MaxASCII {
				t.Errorf("%s --help has %q:\n%s", command, r, out)
				break
			}
		}
	}
}

// attack is text that a terminal would act on.
const attack = "\x1b]0;title\a\x1b[2J\n\r\u009b2J\u202e"

func acted(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }) || strings.Contains(text, "\ntitle")
}

// Data that a hostile writer has put into Redis is quoted.
func TestHostileWriter(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	conn := redistest.Conn(t)
	url := redistest.URL()
	worker := "w" + attack
	copied := fmt.Sprintf("r:%x:1", sha1.Sum([]byte("task")))
	failure := strings.Join([]string{attack, "1", attack, attack, "1", "1", "0", fmt.Sprint(len(attack)), attack}, ":")
	for _, c := range [][]any{
		{"LPUSH", prefix + ":process:{q}:" + worker + ".1.1.1", "task"},
		{"ZADD", prefix + ":working:{q}:" + worker, 1, worker + ".1.1.1", 2, worker + ".1.1.2n"},
		{"ZADD", prefix + ":workers:{q}", 1e15, worker},
		{"HSET", prefix + ":worker:" + worker, "name", attack, "host", attack, "pid", attack},
		{"HSET", prefix + ":failed:tasks:{q}", copied, fmt.Sprintf("1:0:0:0:0:%d:%stask", len(failure), failure), "k:" + attack + "#2", attack},
		{"ZADD", prefix + ":failed:ready:{q}", 1, copied, 2, "k:" + attack + "#2"}, {"ZADD", prefix + ":failed:copies:{q}", 0, copied},
		{"SET", prefix + ":" + attack, 1}, {"SET", prefix + ":tasks:{q}:" + attack, 1}, {"SET", prefix + ":worker:" + worker + "x", 1},
		{"SADD", prefix + ":workers", attack, "w\u202e"}, {"SADD", prefix + ":registry", attack, "q", "q\u202e"},
		{"HSET", prefix + ":worker:w\u202e", "name", attack, "host", attack, "version", attack, "queues", redistest.Sure(json.Marshal([]string{"q", attack}))(t)},
		{"HSET", prefix + ":tasks:{q}", "k:x", "1:0:0:0:0:0:" + attack, "k:" + attack, attack}, {"HSET", prefix + ":runs:{q}", "k:x", ":1:1:" + attack, attack, attack},
		{"ZADD", prefix + ":ready:{q}", 1, "k:x", 2, "k:" + attack}, {"ZADD", prefix + ":schedule:{q}", 1e15, attack},
		{"HSET", prefix + ":state:{q}", "paused", "1:" + attack, "token", 9, "place", 9},
		{"ZADD", prefix + ":recurring:{q}", 1e15, "k:" + attack}, {"HSET", prefix + ":recurrence:{q}", "k:" + attack, "9|", "passed:k:" + attack, 1, "last:k:" + attack, attack + ":1:1"},
		{"HSET", prefix + ":rounds:{q}", attack, 1}, {"ZADD", prefix + ":idle:{q}", 1, attack},
	} {
		redistest.Do(t, conn, c[0].(string), c[1:]...)
	}
	for _, args := range [][]string{
		{"explain", "q", "task"}, {"explain", "q", "--key", "x"}, {"explain", "q", "--key", "x", "--json"}, {"check", "--lease", "150ms"}, {"check", "--lease", "150ms", "--json"},
		{"queues"}, {"queues", "--json"}, {"workers"}, {"workers", "--json"}, {"running"}, {"running", "--json"},
		{"tasks", "q"}, {"tasks", "q", "--json"}, {"recurring"}, {"recurring", "--json"},
		{"failed", "q"}, {"failed", "q", "--json"}, {"failed", "q", "--group"}, {"failed", "q", "--group", "--json"},
	} {
		out, status := command(t, "", append(args, "--redis", url, "--prefix", prefix)...)
		if status == exitFailed || acted(out) {
			t.Errorf("%q: exit status %d:\n%q", args, status, out)
		}
	}
	s := shellAt(t, is.New(t), url, prefix)
	s.watchHostile(prefix)
	v := s.terminal("top", "--every", "100ms")
	v.awaits("WORKER")
	v.press("w")
	v.press("q")
	v.awaits("\x1b[?1049l")
	for _, harm := range []string{"\x1b]0;title", "\u009b", "\u202e"} {
		if strings.Contains(v.drawn(), harm) {
			t.Errorf("top draws %q:\n%q", harm, v.drawn())
		}
	}
}

// watchHostile watches forged events.
func (s *shell) watchHostile(prefix string) {
	s.Helper()
	conn := redistest.Conn(s.T)
	lines, ended := s.watching()
	said := s.next(lines)
	done := redistest.Sure(json.Marshal(map[string]string{"workerId": attack, "task": attack, "result": attack}))(s.T)
	for _, event := range []struct {
		kind string
		text any
	}{{"cancel", attack}, {"work", attack}, {"done", done}, {"cancel", attack}, {"cancel", attack}} {
		redistest.Do(s.T, conn, "PUBLISH", prefix+"_{q}_"+event.kind, event.text)
	}
	<-ended
	for len(lines) > 0 {
		said += <-lines
	}
	if acted(said) || !strings.Contains(said, "title") {
		s.Errorf("watch prints:\n%q", said)
	}
}

// The replies of a hostile server are quoted, too.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	door := redistest.Listen(t, func(c net.Conn) {
		for range redistest.Requests(c) {
			_, _ = c.Write([]byte("-ERR " + strings.NewReplacer("\n", "", "\r", "").Replace(attack) + "\r\n"))
		}
	})
	for _, args := range [][]string{{"explain", "q", "task"}, {"check"}} {
		var out bytes.Buffer
		status := run(append(args, "--redis", door.URL()), strings.NewReader(""), &out, &out)
		if status != exitFailed || acted(out.String()) || !strings.Contains(out.String(), "title") {
			t.Errorf("%q: exit status %d:\n%q", args, status, out.String())
		}
	}
}

// Whatever Redis answers to a bad login, the error has the cause.
func TestBadLogin(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	locked := redistest.Start(t, "--requirepass", "SECRET")
	for _, url := range []string{
		"redis://:" + canary + "@" + server.Addr(), "redis://ann:" + canary + "@" + server.Addr(),
		"redis://" + locked.Addr(), "redis://:" + canary + "@" + locked.Addr(),
	} {
		for _, args := range [][]string{{"queues"}, {"enqueue", "q", "a"}, {"check"}, {"watch"}} {
			out, status := command(t, "", append(args, "--redis", url)...)
			is.Equal(status, exitFailed)
			is.True(strings.HasSuffix(out, "\nRedis refuses the login: check the user and the password of REDIS_URL or --redis\n"))
		}
	}
}

// If a permission is missing, the error has the rule.
func TestDenied(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	redistest.Do(t, redistest.Dial(t, server.URL()), "ACL", "SETUSER", "ann", "on", ">"+canary, "~*", "&*", "+@all", "-evalsha")
	url := "redis://ann:" + canary + "@" + server.Addr()
	const rule = "; grant it the rule \"Worker\" in docs/security.md"
	redistest.Do(t, redistest.Dial(t, server.URL()), "LPUSH", "worqr:queues:{q}", "a")
	for _, args := range [][]string{{"enqueue", "q", "a"}, {"explain", "q", "a"}, {"pause", "q"}} {
		out, status := command(t, "", append(args, "--redis", url)...)
		is.Equal(status, exitFailed)
		is.True(strings.HasSuffix(out, rule+"\n"))
	}
	out, _ := command(t, "", "check", "--redis", url)
	is.True(strings.Contains(out, "\"Doctor\"") && !strings.Contains(out, "Worker\""))
}

// Joined errors are on one line, and what they have in common is printed once.
func TestInOneLine(t *testing.T) {
	is := redistest.Parallel(t)
	no := errors.New("NOAUTH no password")
	is.Equal(inOneLine(errors.Join(fmt.Errorf("stop worker: %w", no), no, errors.New("other"))), "stop worker: NOAUTH no password; other")
	is.Equal(inOneLine(errors.Join(errors.New("it is disabled."), no)), "it is disabled; NOAUTH no password")
}
