package main

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// repair is the check command that repairs.
const repair = "check --repair --lease LEASE"

// fixes are the commands that fix a finding, or show more of it. QUEUE stands for its queue. Those
// that don't begin with a command of worqr are for a shell. URL stands for the server's, which
// isn't repeated because it may contain a password.
var fixes = map[inspect.FindingKind]string{
	"orphan": repair, "token": repair, "expired-worker": repair, "recurring": repair,

	"paused":        "resume QUEUE",
	"long-run":      "running QUEUE",
	"stuck-handler": "workers",
	"evicted":       "workers",
	"leases":        "workers",
	"clock":         "workers",
	"starved":       "queues",
	"crashing":      "running QUEUE",
	"failing":       "failed QUEUE",
	"dropped":       "failed QUEUE",
	"job-failed":    "recurring QUEUE",
	"job-late":      "recurring QUEUE",
	"job-gone":      "recurring QUEUE",
	"stalled":       "running QUEUE",
	"overdue":       "tasks --state scheduled QUEUE",
	"retrying":      "tasks --state scheduled QUEUE",
	"backlog":       "queues QUEUE",
	"failed":        "failed QUEUE",

	"eviction-policy": "$ redis-cli -u URL CONFIG SET maxmemory-policy noeviction; redis-cli -u URL CONFIG REWRITE",
	"full-coverage":   "$ redis-cli -u URL CONFIG SET cluster-require-full-coverage no; redis-cli -u URL CONFIG REWRITE",
	"cluster":         "$ redis-cli --cluster check HOST:PORT",
	"memory":          "$ redis-cli -u URL INFO memory",
	"full":            "$ redis-cli -u URL INFO memory",
	"slow-redis":      "$ redis-cli -u URL SLOWLOG GET 10",
}

// fixOf returns the command for a finding; "" if there is none.
func (t *target) fixOf(f inspect.Finding) string {
	if f.Repaired || f.Silenced != nil {
		return ""
	}
	return t.command(fixes[f.Kind], strings.TrimSuffix(f.Queue, " (failed)"))
}

// service returns the advice if no worker serves a queue. It isn't a command to paste, since that might give the
// tasks to the wrong program.
func (t *target) service(queue string) string {
	return "start the service that handles it (`" + t.command("work QUEUE -- PROGRAM", queue) + "` if that's a program)"
}

// adviceFor returns the text below a line; "" if there is none.
func (t *target) adviceFor(l inspect.Line) string {
	fix := t.fixOf(l.Finding)
	switch {
	case l.Kind == "no-worker" && len(l.Queues) == 1:
		return t.service(l.Queue)
	case fix != "":
		return "try: " + fix
	}
	return ""
}

// reasons are the commands that fix, or show more of, a reason why a task doesn't run.
var reasons = map[inspect.Reason]string{
	inspect.ReasonPaused:       "resume QUEUE",
	inspect.ReasonBusy:         "running QUEUE",
	inspect.ReasonLeaseExpired: "workers",
	inspect.ReasonStopping:     "running QUEUE",
	inspect.ReasonFailed:       "failed QUEUE",
	inspect.ReasonAside:        "failed QUEUE",
}

// fixesOf returns the commands for a task that doesn't run.
func (t *target) fixesOf(e *inspect.Explanation) (all []string) {
	seen := map[string]bool{"": true}
	for _, c := range e.Copies {
		for _, why := range c.Reasons {
			if fix := t.command(reasons[why], e.Queue); !seen[fix] {
				seen[fix], all = true, append(all, fix)
			}
		}
	}
	return all
}

// command returns a command of this program, as it's typed.
func (t *target) command(text string, queues ...string) string {
	if after, ok := strings.CutPrefix(text, "$ "); ok || text == "" {
		return after
	}
	if t.Lease > 0 {
		text = strings.Replace(text, "LEASE", time.Duration(t.Lease).String(), 1)
	}
	flags, args, named := strings.Cut(text, " QUEUE")
	text = "worqr " + flags
	if t.Prefix != "worqr" {
		text += " --prefix " + shellQuoted(string(t.Prefix))
	}
	if !named {
		return text
	}
	if slices.ContainsFunc(queues, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		text += " --" // or the name would be a flag
		args = strings.Replace(args, " -- ", " ", 1)
	}
	for _, name := range queues {
		text += " " + shellQuoted(name)
	}
	return text + args
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@+,][A-Za-z0-9_./:@%+,-]*$`)

// shellQuoted returns word quoted for bash, zsh and fish, if it's safe to show on a terminal. In fish, a backslash
// escapes between single quotes, too.
func shellQuoted(word string) string {
	switch {
	case plainWord.MatchString(word):
		return word
	case printable(word) != word:
		return "QUEUE" // the word can't be shown unchanged
	}
	return "'" + escaped.ReplaceAllString(word, `'\$0'`) + "'"
}

var escaped = regexp.MustCompile(`['\\]`)
