package main

import (
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/worqr/worqr"
)

// An entry is a command in the list of commands.
type entry struct {
	group string // "" hides it
	name  string
	run   any    // has the flags and arguments; kong calls its Validate and Run
	help  string // one line
	more  string // below the usage, in its own help
}

// commands returns all commands, in the order of the help.
func commands() []entry {
	return []entry{
		{"look", "top", &topCommand{}, "Watch queues and workers live, with rates; pause and requeue with a keystroke.",
			"Keys: j and k choose a queue, p pauses or resumes it, r requeues its failed tasks (it asks first), s sorts, w enlarges the list of workers, q quits. OLDEST is how long the oldest waiting task has been due. STATE is silent if all workers of a queue have died or can't reach Redis, and busy if none has a free slot. IN/S is how many tasks arrive per second, counting retries; OUT/S how many start. In scripts, use \"worqr queues --json\" or \"worqr watch\"."},
		{"look", "queues", &queuesCommand{}, "List queues and their counts.",
			"OLDEST is how long the oldest waiting task has been due, if that is known. IDLE is the number of workers with free slots. STATE says who has paused a queue, and when. It's \"worker silent\" if all workers of a queue have died or can't reach Redis, and no peer is left to return their tasks: start one. The exit status is 0, even if there are no queues; 1 if a named one doesn't exist; and 2 if some can't be read: each of these has a row with the error, and the other rows are complete."},
		{"look", "workers", &workersCommand{}, "List workers, the running peers.",
			"Workers are the peers that are running; those that have been silent for more than two leases aren't shown. SLOTS is how many tasks a worker may run at a time; STUCK is how many handlers didn't return after their context ended."},
		{"look", "running", &runningCommand{}, "List running tasks; --older 10m shows those that have run for longer.",
			"Tasks that a worker has prefetched are shown, too. With --older, the exit status is 1 if any task has run for longer, and 0 otherwise. It is 2 if some queues can't be read: each of these has a row with the error, and the other rows are complete."},
		{"look", "tasks", &tasksCommand{}, "List the waiting tasks of a queue, with their states, times and keys.",
			"First those on the list, from Enqueue, in the order of their starts; they're only payloads. Then the named ones, from Add, and those that wait for a retry. STATE is listed; ready (it may start); scheduled (it waits for its time, which is DUE); risky (one more crash would make it fail, so a worker runs one such task at a time); or blocked (a task with its key is running)."},
		{"look", "recurring", &recurringCommand{}, "List recurring tasks: their next times, and how the last ones ended.",
			"RECURS is the expression that the code gives or, without one, the time between occurrences. Schedules are defined in code, and exist while a peer with them runs; if no peer has a schedule anymore, its STATE says so, and it ends soon. LAST is how the last occurrence ended: finished, failed, crashed, canceled, skipped or lost. To start one now, use: worqr run-now. The exit status is 2 if some queues can't be read: each of these has a row with the error, and the other rows are complete."},
		{"look", "history", &historyCommand{}, "Show what happened on a queue in the last hours, days or weeks.",
			"Peers write once a minute what they have counted: minutes are kept for a day, and hours for 61 days. Times are when a period began, in UTC. WAITED is how long 95 % of the tasks of Add waited at most, or how long the front of the list had waited, if that's longer; RAN is how long 95 % of the handlers ran at most. Both are estimates. BACKLOG is the most that waited. An arrow marks when the service had a new version. Periods without a record are empty: nothing happened, or no peer ran. With --json, each period is an object with all counts; in waited and ran, element i counts durations below 10 ms times 4^i. The exit status is 1 if there is no such queue."},
		{"look", "failed", &failedCommand{}, "List the failed tasks of a queue, by kind, reason, payload, header and time; requeue or delete what matches.",
			"Lists failed tasks that match all filters, newest first. An ID has the task's key, escaped, and a number. Tasks are read page by page, so there may be any number of them. " +
				"--requeue and --delete first count what matches, and ask for the name of the queue; tasks that fail meanwhile are left alone. Requeued tasks begin with no retries; one whose key has a task that waits or runs stays. " +
				"Listing exits with 0, or 1 if there is no such queue; --requeue and --delete exit with 1 if nothing matched, or some of the tasks stayed."},
		{"look", "result", &resultCommand{}, "Show how a task ended, and its result, if it was enqueued with --keep-result.",
			"The exit status is 0 if the task has finished, and 1 if it ended in another way or hasn't ended, or if its result wasn't kept or has expired."},
		{"look", "wait", &waitCommand{}, "Wait until a task ends, and show its result.",
			"Waits until the task with the key ends, even if Redis restarts. The exit status is 0 if it has finished, and 1 if it ended in another way, didn't end within --timeout, or has no kept result. " +
				"A script can run a task on another machine this way: worqr wait emails \"$(worqr enqueue emails --keep-result 1h hello)\""},
		{"look", "watch", &watchCommand{}, "Print events as JSON lines.",
			"Prints events as JSON lines. The kinds are: sync (comes first; no event is missed until the next one), work (count tasks were enqueued), done (a worker finished a task; retries and failures produce no event), cancel, delete and lost. " +
				"While Redis can't be reached, the command says so and keeps trying. Events are sent, not stored: without watchers, they cost nothing."},
		{"look", "explain", &explainCommand{}, "Show where a task is and why it isn't running.",
			"The payload is not printed. Tasks with keys, such as those of \"worqr enqueue --header\", are found only by --key or --header. The exit status is 0 if there's a copy of the task, 1 if there's none, and 2 if the command failed."},
		{"look", "find", &findCommand{}, "Find a task in all queues.",
			"Explains the copies of a task as \"worqr explain\" does, on each queue that has any; failed tasks count. It searches each queue for 3 s at most. The exit status is 0 if there's a copy of the task, 1 if there's none, and 2 if the command failed, or some queues can't be read: each of these has a row with the error."},
		{"look", "check", &checkCommand{}, "Check a fleet's keys in Redis for damage, stuck tasks and risky settings. It's safe while the fleet is running.",
			"Findings are ranked by harm: lost (work is refused or gone), stopped (nothing moves on a queue), stuck (some tasks stand still), risk, notice. There is one line for each cause, the worst first. " +
				"The exit status is 0 if there are only notices and silenced findings, 1 if there are others, and 2 if the check itself failed or no worqr keys have the prefix, so you can use it for alerts. In JSON, ok is true if the status is 0. " +
				"Each line shows the kind of finding in parentheses; pass the kinds you accept to --ignore. The line below a finding has the command that fixes it or shows more. With --json, the report is one object with all findings."},

		{"act", "enqueue", &enqueueCommand{}, "Enqueue tasks: arguments, or lines of standard input.",
			"Lines are enqueued as they arrive, so another program can keep writing to this one. " +
				"Tasks with a time or a property get keys, which are printed, one per line, unless you give --key. With --json, each key is an object, and the last line has the counts. " +
				"If a reply from Redis is lost, plain tasks are sent again, but not enqueued twice. With --unique, the exit status is 1 if a task was skipped."},
		{"act", "run-now", &runNowCommand{}, "Run a recurring task now.",
			"The task runs now, with its payload and headers, in addition to its schedule. If it's running, it runs again once that has ended; if it's waiting for a retry, it starts now, and keeps its counts. The exit status is 1 if no recurring task has the key."},
		{"act", "cancel", &cancelCommand{}, "Cancel a task wherever it is, and wait until it has stopped.",
			"Waiting copies are removed; running ones are stopped, in any process, and never run again. Tasks with keys, such as those of \"worqr enqueue --header\", are found only by --key. The exit status is 0 if none is left, even if there was none, and 1 if one is still running."},
		{"act", "remove", &keysCommand{done: "removed", change: (*worqr.Queue).RemoveKey}, "Remove waiting tasks by key.",
			"Only the waiting task of a key is removed, not a running one; \"worqr cancel --key\" stops that, too. The exit status is 1 if no task waited under one of the keys."},
		{"act", "requeue", &requeueCommand{}, "Put failed tasks back into their queue.",
			"Puts failed tasks back into the queue, with no retries counted. One whose key has a task that waits or runs stays, and so does one that OnFailed is handling. For many, use: worqr failed --requeue. The exit status is 1 if one stayed or isn't there."},
		{"act", "pause", &pauseCommand{}, "Keep tasks of queues from starting.",
			"Running tasks continue, and tasks can be enqueued. To wait until nothing runs anymore, use: worqr drain. The exit status is 1 if there is no such queue."},
		{"act", "resume", &resumeCommand{}, "End a pause.",
			"Tasks of the queues start again. Queues that aren't paused don't change. The exit status is 1 if there is no such queue."},
		{"act", "silence", &silenceCommand{}, "Silence findings of a kind for a while, or list what is silenced.",
			"Silences findings for everybody: they are shown last, and don't count for the exit status of check, the dashboard and worqr_findings. Without a kind, it lists the silences. The exit status is 1 if there was none to end."},
		{"act", "drain", &drainCommand{}, "Pause queues and wait until none of their tasks run.",
			"Pauses the queues and waits until none of their tasks is running, for example before a migration. Waiting tasks stay. The queues stay paused until \"worqr resume\". The exit status is 1 if tasks are still running after --timeout, and 2 if a queue can't be paused or read; the others are still drained."},
		{"act", "delete", &deleteCommand{}, "Delete all waiting tasks of a queue.",
			"Drops all waiting tasks of a queue, listed and named. Running tasks, failed tasks and a pause stay: to delete failed ones, use \"worqr failed --delete\". It asks for the name of the queue. The exit status is 1 if there was nothing to delete."},
		{"act", "fail-worker", &failWorkerCommand{}, "Evict a worker and return its tasks.",
			"Evicts a worker, alive or not, and returns its tasks to the front of their queues. A worker that is alive stops its tasks and comes back under a new id. Dead workers are evicted by their peers, without this command. It asks you to type the worker's name or id again. The exit status is 1 if there is no such worker."},

		{"run", "work", &workCommand{}, "Run a program for each task of a queue.",
			"The program reads the payload from standard input. Exit status 0 finishes the task, 65 fails it for good, and any other retries it. " +
				"What it prints, up to 1 MiB, is the task's result, which \"worqr watch\" and \"worqr wait\" show; the end of its error output is the reason for a failure. " +
				"Its environment has WORQR_QUEUE, WORQR_ATTEMPT, WORQR_TOKEN, WORQR_KEY, WORQR_RETRIES and WORQR_CRASHES, and a few variables of this process, but not REDIS_URL, which may have a password. " +
				"The exit status is 0 after SIGTERM or Ctrl-C, once the programs have ended. With --json, the log is JSON, too, and at the end, one object has the number of tasks finished, retried and failed."},
		{"run", "serve", &serveCommand{}, "Serve the dashboard.",
			"Serves the dashboard until Ctrl-C. While Redis is down, it still answers, and says so. It reads Redis only while a page is open. Actions are logged. To put it behind your own login, mount package dash in your service."},
		{"run", "completion", &completionCommand{}, "Print the completion script for bash, zsh or fish.",
			"Prints a script that completes commands, flags and names of queues. Bash: source <(worqr completion bash). Zsh: source <(worqr completion zsh), after compinit. Fish: worqr completion fish | source. " +
				"Names of queues come from the Redis at $REDIS_URL, unless it takes longer than a second to answer."},
		{"run", "version", &versionCommand{}, "Print the version.", ""},
		{"", "complete", &completeCommand{}, "Answer a completion script.", ""},
	}
}

// manual is the introduction in the command's help.
const manual = `A peer-to-peer work queue on Redis: look at a fleet, act on it, and run tasks.

The commands use the Redis at $$REDIS_URL or --redis: a single server, redis+sentinel:// or redis+cluster://. $$WORQR_PREFIX or --prefix is the prefix of the keys. Each command has its own --help. With --json, most print JSON, one object per line. Names, payloads and keys are taken byte for byte. Control characters in stored data are escaped.

Exit status: 0: it worked and all is well; 1: the output says what is wrong, or there was nothing to do; 2: incorrect usage, or the command failed.`

func newParser(options ...kong.Option) *kong.Kong {
	options = append(options,
		kong.Name("worqr"),
		kong.Description(manual),
		kong.ExplicitGroups([]kong.Group{{Key: "look", Title: "Look:"}, {Key: "act", Title: "Act:"}, {Key: "run", Title: "Run:"}}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Vars{"version": "worqr v" + worqr.Version},
		kong.KindMapper(reflect.String, asGiven))
	details := map[string]string{}
	for _, c := range commands() {
		details[c.name] = c.more
		var tags []string
		if c.group == "" {
			tags = []string{`hidden:""`}
		}
		options = append(options, kong.DynamicCommand(c.name, c.help, c.group, c.run, tags...))
	}
	var global struct {
		Version kong.VersionFlag `help:"Print the version, and exit."`
	}
	k := kong.Must(&global, options...)
	for _, n := range k.Model.Leaves(true) {
		n.Detail = details[n.Name]
	}
	return k
}
