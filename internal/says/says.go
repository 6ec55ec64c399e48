// Package says has the words of findings: a title for each kind, what is wrong, and what to do.
package says

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/worqr/worqr/internal/words"
)

// A Kind has the words of one kind of finding.
type Kind struct {
	Name, Title string
	// Says and Do are templates. {a|b} is a number with a if it's 1, or else with
	// b; <a|b> is the same without the number. [a|b] is a for one queue, and b for several.
	Says string // what is wrong; "" if each finding of the kind has a text of its own
	None string // Says without a number
	Do   string
}

// All lists the kinds, those that do most harm first.
var All = []Kind{
	// Work is refused or gone.
	{Name: "unreachable", Title: "Redis can't be reached"},
	{Name: "denied", Title: "Redis denies access"},
	{Name: "full", Title: "Redis is full and refuses new tasks"},
	{Name: "redis-version", Title: "Redis is too old"},
	{Name: "cluster", Title: "A part of the cluster can't be used"},
	{Name: "no-payload", Title: "Tasks are lost", Says: "Redis has lost {payload|payloads} of tasks.", Do: "Check Redis's eviction policy and persistence. The finding disappears when the task ends."},
	{Name: "lost-writes", Title: "Redis has lost writes"},
	{Name: "dropped", Title: "Failed tasks are dropped", Says: "The failed queue[| of each] is full, and its oldest tasks were dropped for good.",
		Do: "Fix what makes them fail; then requeue or delete failed tasks, or raise KeepFailed."},

	// Nothing moves on a queue.
	{Name: "no-worker", Title: "No worker", Says: "{task is|tasks are} waiting, and no worker serves [this queue|these queues].",
		None: "No worker of [this queue|these queues] is alive.", Do: "Start the service that handles [it|them]."},
	{Name: "stalled", Title: "Nothing starts", Says: "{task is|tasks are} waiting, every slot is busy, and none becomes free.",
		Do: "Look at what runs. If handlers hang, take a goroutine dump, restart the worker, and set a Timeout."},
	{Name: "wrong-type", Title: "A key has the wrong type"},
	{Name: "token", Title: "The state of a queue is damaged", None: "A number in the state of [the queue|these queues] can't be read, so no worker can join; or a counter is lower than one in use, so it would repeat.",
		Do: "Repair raises a counter. If a number can't be read, the peers' logs name it: set token, fence or place above every one in use, and delete any other."},
	{Name: "paused", Title: "Paused", Says: "{task is|tasks are} waiting, and [the queue is|these queues are] paused.", None: "[The queue is|These queues are] paused.",
		Do: "Resume [it|them], unless the pause is intended."},

	// Some tasks stand still.
	{Name: "unreadable", Title: "A queue can't be read"},
	{Name: "unlisted", Title: "The workers can't be listed"},
	{Name: "starved", Title: "A queue gets no slot", Says: "{task is|tasks are} waiting on [this queue|these queues], nothing runs there, and no worker has room: other queues use up its Capacity.",
		Do: "Raise Capacity, or give [the queue|the queues] workers of [its|their] own."},
	{Name: "crashing", Title: "A task may crash its workers", Says: "{task was|tasks were} held by several workers that died, hung or lost their connection to Redis.",
		Do: "Look at their logs from then, and at what <the task does|the tasks do>. After MaxCrashes, 3 by default, <it fails|they fail>."},
	{Name: "stuck-handler", Title: "Stuck handlers", Says: "{handler hasn't|handlers haven't} returned, though <its attempt|their attempts> timed out or <was|were> stopped.",
		Do: "Other tasks use <its slot|their slots>. The worker's log has the <stack|stacks>: fix the handler, and restart the worker."},
	{Name: "expired-worker", Title: "A worker has died", Says: "{worker has|workers have} stopped sending heartbeats, and nobody has returned what <it|they> held.",
		Do: "Usually that ends within seconds. Otherwise start a peer, or run Repair: it evicts <the worker|them> and returns the tasks."},
	{Name: "orphan", Title: "Tasks are stuck", Says: "{task was started and is|tasks were started and are} held by no member of the queue, so no worker returns <it|them>.",
		Do: "Repair returns <it|them> to the front of the queue."},
	{Name: "recurring", Title: "A recurring task is stuck", None: "Redis's clock was ahead when a recurring task was last asserted or started, so it doesn't run, or never ends.",
		Do: "Repair corrects it; a peer that has the schedule writes it again."},
	{Name: "job-failed", Title: "A recurring task fails", Says: "The last run of {recurring task|recurring tasks} didn't succeed.", Do: "Look at its failed task, fix the cause, and run it again."},
	{Name: "job-late", Title: "A recurring task is late", Says: "{recurring task is|recurring tasks are} late.", Do: "Look at what keeps the workers busy, or start a peer that has the schedule."},
	{Name: "failing", Title: "Tasks are failing", Says: "{task has|tasks have} failed for good, far more than usual.", Do: "Fix the cause; then requeue <it|them>, or delete what can't succeed."},
	{Name: "retrying", Title: "Many tasks are retried", Says: "{task is|tasks are} waiting for a retry.", Do: "<It retries by itself|They retry by themselves>; fix what makes <it|them> fail."},
	{Name: "long-run", Title: "A task runs for very long", Says: "{task has|tasks have} run for very long.", Do: "The handler may be stuck: look at its worker, and set a Timeout."},
	{Name: "overdue", Title: "Tasks are late", Says: "{task is|tasks are} waiting, and the first one is late.", Do: "Add workers, or find out what keeps them busy."},
	{Name: "inconsistent", Title: "The keys of a queue disagree"},
	{Name: "backlog", Title: "The backlog is large", Says: "{task is|tasks are} waiting.", Do: "Find out what enqueues so much, or what slows the workers down; or add workers."},
	{Name: "failed", Title: "Failed tasks", Says: "{task|tasks} failed for good.", Do: "List them with their reasons; then requeue or delete them."},

	// Later, something may be lost.
	{Name: "job-gone", Title: "A recurring task is gone", Says: "{recurring task doesn't|recurring tasks don't} run anymore, since no running peer has <its schedule|their schedules>.",
		Do: "If that isn't intended, start a peer that calls Every for it."},
	{Name: "evicted", Title: "Workers were evicted", Says: "{worker|workers} died, hung or lost <its|their> connection to Redis, and <its|their> tasks went back to the queue."},
	{Name: "eviction-policy", Title: "Redis may evict tasks"},
	{Name: "memory", Title: "Redis is almost full"},
	{Name: "persistence", Title: "Redis may lose tasks when it stops"},
	{Name: "replication", Title: "A failover may lose writes"},
	{Name: "leases", Title: "Workers have different leases", None: "Workers of [this queue|these queues] have different leases.",
		Do: "While a deploy changes the lease, that's normal. Otherwise workers evict each other too early or too late: give all workers of a queue the same lease, and each service its own prefix."},
	{Name: "clock", Title: "A clock is wrong", Says: "{process has a clock|processes have clocks} that <differs|differ> from Redis's by more than a second.", None: "The clocks of this machine and of Redis differ.",
		Do: "Synchronize <it|them>. Leases don't depend on clocks."},
	{Name: "slow-redis", Title: "Redis is slow"},
	{Name: "full-coverage", Title: "One node stops the whole cluster"},
	{Name: "unknown-key", Title: "Other keys have the prefix"},
	{Name: "not-permitted", Title: "Not everything was checked"},
}

// Of returns the words of a kind; nil if it has none, such as that of a Source.
func Of(kind string) *Kind {
	if i := Rank(kind); i < len(All) {
		return &All[i]
	}
	return nil
}

// Rank returns the place of a kind in All.
func Rank(kind string) int {
	i := slices.IndexFunc(All, func(k Kind) bool { return k.Name == kind })
	if i < 0 {
		return len(All)
	}
	return i
}

// Folds reports whether findings of the kind that differ in their queues and numbers are one incident.
func (k *Kind) Folds() bool { return k != nil && k.Says+k.None != "" }

// What returns what is wrong, about n things.
func (k *Kind) What(n int, several bool) string {
	if n == 0 {
		return fill(cmp.Or(k.None, k.Says), n, several)
	}
	return fill(k.Says, n, several)
}

// Text returns what is wrong and what to do, about n things. The detail comes between.
func (k *Kind) Text(n int, several bool, detail string) string {
	text := k.What(n, several)
	for _, more := range []string{detail, fill(k.Do, n, several)} {
		if more != "" {
			text += " " + more
		}
	}
	return text
}

var (
	counted = regexp.MustCompile(`\{([^|}]*)\|([^}]*)\}`)
	numbers = regexp.MustCompile(`<([^|>]*)\|([^>]*)>`)
	queues  = regexp.MustCompile(`\[([^|\]]*)\|([^\]]*)\]`)
)

func fill(text string, n int, several bool) string {
	text = counted.ReplaceAllStringFunc(text, func(s string) string {
		m := counted.FindStringSubmatch(s)
		if n == 1 {
			return "1 " + m[1]
		}
		return words.Grouped(n) + " " + m[2]
	})
	return queues.ReplaceAllString(numbers.ReplaceAllString(text, pick(n > 1)), pick(several))
}

func pick(second bool) string {
	if second {
		return "$2"
	}
	return "$1"
}
