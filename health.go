package worqr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// CheckOptions configure Check and Repair. Nil means the defaults.
//
// What exceeds a limit that is set here is a danger. Without limits, Check goes by
// defaults, and what exceeds these is a notice: only you know how long your tasks take
// and how many may fail.
type CheckOptions struct {
	// MaxRun is how long a task may run; the default is an hour.
	MaxRunTime time.Duration
	// MaxAge is how long a task that is due may wait, and how long a queue may start
	// nothing while tasks wait; the default is ten minutes. The age of a task on the
	// list isn't known, only how late a scheduled one is.
	MaxWaitTime time.Duration
	// MaxWaiting is how many tasks may wait on a queue that are due; 0 sets no
	// limit, and a negative number allows none.
	MaxBacklog int
	// MaxRetrying is how many tasks of a queue may wait to be retried; 0 is 10, and
	// a negative number allows none.
	MaxRetrying int
	// MaxFailed is how many tasks may be in a failed queue; 0, like a negative number,
	// allows none, but only a negative one makes that a danger.
	MaxFailed int
	// Ignore has the report leave out findings of these kinds, whatever their severity.
	// Repair repairs them nevertheless.
	Ignore []FindingKind
}

const (
	defaultMaxRun      = time.Hour
	defaultMaxAge      = 10 * time.Minute
	defaultMaxRetrying = 10

	recently  = time.Hour   // of failures
	overtakes = 100         // times as many tasks as run have started since: far longer than is usual
	atLeast   = time.Minute // that is not said of
)

func (o *CheckOptions) check() error {
	if o.MaxRunTime < 0 || o.MaxWaitTime < 0 {
		return fmt.Errorf("%w: a MaxRun of %v and a MaxAge of %v; neither may be negative", ErrInvalid, o.MaxRunTime, o.MaxWaitTime)
	}
	for _, kind := range o.Ignore {
		if !slices.Contains(findingKinds, kind) {
			return fmt.Errorf("%w: there is no kind of finding that is called %s", ErrInvalid, shown(string(kind)))
		}
	}
	return nil
}

// against tells how bad it is that a limit is exceeded: one that was set, or the default.
func against(set bool) Severity {
	if set {
		return SeverityWarning
	}
	return SeverityNotice
}

// A run is a task that a worker holds.
type run struct {
	process, worker string
	token           string
	since           time.Time // zero if its id does not tell
}

// runs are what is known of those of a queue, so that not all of them are kept.
type runs struct {
	held   int
	long   int // beyond MaxRun
	oldest run // by token
	newest time.Time
}

// add takes in a run. Its process id has the time at which its peer asked for it.
func (r *runs) add(c *checkup, one run) {
	one.since = begun(one.process)
	r.held++
	if one.since.IsZero() {
		return
	}
	if c.age(one.since) > cmp.Or(c.opts.MaxRunTime, defaultMaxRun) {
		r.long++
	}
	if r.oldest.process == "" || grown(one.token, r.oldest.token) {
		r.oldest = one
	}
	if one.since.After(r.newest) {
		r.newest = one.since
	}
}

// age is how long ago it was when the checkup began.
func (c *checkup) age(t time.Time) time.Duration { return time.UnixMilli(c.now).Sub(t) }

// health looks at whether a queue does its work.
func (c *checkup) health(pt *patient) error {
	q := pt.queue.keys
	now := strconv.FormatInt(c.now, 10)
	waiting, due, workers, idle, paused, failed, fresh, token := 0, 1, 2, 3, 4, 5, 6, 7
	n, err := c.asks(
		redisconn.Command("LLEN", q.Waiting()), redisconn.Command("ZCOUNT", q.Schedule(), "-inf", now),
		redisconn.Command("ZCOUNT", q.Workers(), now, "+inf"), redisconn.Command("ZCARD", q.Idle()), redisconn.Command("EXISTS", q.Paused()),
		redisconn.Command("ZCARD", q.Contents()), redisconn.Command("ZCOUNT", q.Schedule(), c.now-recently.Milliseconds(), now),
		redisconn.Command("GET", q.Token()))
	if err != nil {
		return err
	}
	c.long(pt, n[token])
	if q.IsFailed() {
		c.failures(pt, int(n[failed]), int(n[fresh]))
		return nil
	}
	ready := int(n[waiting] + n[due])
	if n[workers] > 0 && n[paused] == 0 {
		c.stalled(pt, ready, n[idle] > 0)
		if err := c.late(pt, now); err != nil {
			return err
		}
	}
	if most := c.opts.MaxBacklog; most != 0 && ready > max(most, 0) {
		c.found(Finding{Kind: findingBacklog, Severity: SeverityWarning, Queue: pt.queue.id, Key: q.Waiting(),
			Text: fmt.Sprintf("%s waiting; the limit is %d. Add workers, or find out what slows them down.", tasks(ready, "is", "are"), max(most, 0))})
	}
	if most := max(cmp.Or(c.opts.MaxRetrying, defaultMaxRetrying), 0); pt.retries > most {
		c.found(Finding{Kind: findingRetrying, Severity: against(c.opts.MaxRetrying != 0), Queue: pt.queue.id, Key: q.Schedule(),
			Text: fmt.Sprintf("%s waiting to be retried; the limit is %d. The logs of the workers say why they fail.", tasks(pt.retries, "is", "are"), most)})
	}
	return nil
}

// long reports runs that take long, and the oldest if so many tasks have started since
// that it takes far longer than the others do.
func (c *checkup) long(pt *patient, token int64) {
	r := &pt.runs
	if r.held == 0 || r.oldest.process == "" {
		return
	}
	f := Finding{Kind: findingLong, Queue: pt.queue.id, Key: clip(pt.queue.keys.Process(r.oldest.process)), Subject: clip(r.oldest.worker)}
	which := fmt.Sprintf("the oldest has run for %v, since %s", c.age(r.oldest.since).Round(time.Second), clock(r.oldest.since))
	const cure = "Its handler may be stuck: look at its worker, and set a Timeout."
	first, _ := strconv.ParseInt(r.oldest.token, 10, 64)
	if since := token - first; r.long > 0 {
		f.Severity = against(c.opts.MaxRunTime > 0)
		f.Text = fmt.Sprintf("%s for longer than %v: %s. %s", tasks(r.long, "has run", "have run"), cmp.Or(c.opts.MaxRunTime, defaultMaxRun), which, cure)
	} else if first > 0 && since > int64(overtakes*r.held) && c.age(r.oldest.since) > atLeast {
		f.Severity = SeverityNotice
		f.Text = fmt.Sprintf("A task runs far longer than the others: %s, and %d have started since. %s", which, since, cure)
	} else {
		return
	}
	c.found(f)
}

// stuck reports peers with handlers that ignore that their context has ended. Their tasks
// have ended without them; what they occupy of the peer stays occupied.
func (c *checkup) stuck() error {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(c.present)), page) {
		workers, err := store.Registrations(c.ctx, c.peer.calls, c.peer.space, ids)
		if err != nil {
			return err
		}
		for _, w := range workers {
			if w.StuckHandlers > 0 {
				c.found(Finding{Kind: findingStuck, Severity: SeverityWarning, Key: c.peer.space.Worker(clip(w.ID)), Subject: clip(w.ID),
					Text: fmt.Sprintf("Peer %s (pid %d on %s) has %s that didn't return after their context ended. Its log has their stacks; restart it.",
						shown(w.Name), w.PID, shown(w.Host), several(w.StuckHandlers, "handler"))})
			}
		}
	}
	return nil
}

// stalled reports that all handlers have been busy with the same tasks for long, while
// others wait.
func (c *checkup) stalled(pt *patient, ready int, idle bool) {
	if limit := cmp.Or(c.opts.MaxWaitTime, defaultMaxAge); ready > 0 && !idle && !pt.runs.newest.IsZero() && c.age(pt.runs.newest) > limit {
		c.found(Finding{Kind: findingStalled, Severity: against(c.opts.MaxWaitTime > 0), Queue: pt.queue.id, Key: pt.queue.keys.Waiting(),
			Text: fmt.Sprintf("%s waiting, and none has started for %v: every handler is busy. Look at the handlers, or add workers.",
				tasks(ready, "is", "are"), c.age(pt.runs.newest).Round(time.Second))})
	}
}

// late reports that what has a time does not start.
func (c *checkup) late(pt *patient, now string) error {
	first, err := redis.Strings(c.peer.calls.One(c.ctx, redisconn.Command("ZRANGEBYSCORE", pt.queue.keys.Schedule(), "-inf", now, "WITHSCORES", "LIMIT", 0, 1)))
	if err != nil && !store.IsWrongType(err) {
		return err
	}
	if len(first) < 2 {
		return nil
	}
	ms, _ := strconv.ParseFloat(first[1], 64) // scores are numbers
	age := c.age(time.UnixMilli(int64(max(ms, 0))))
	if limit := cmp.Or(c.opts.MaxWaitTime, defaultMaxAge); age > limit && ms > 1 { // 0 and 1 are as soon as possible
		c.found(Finding{Kind: findingLate, Severity: against(c.opts.MaxWaitTime > 0), Queue: pt.queue.id, Key: pt.queue.keys.Schedule(),
			Text: fmt.Sprintf("A task was due %v ago, and has not started. Add workers, or find out what keeps them busy.", age.Round(time.Second))})
	}
	return nil
}

// failures reports what is in the failed queue.
func (c *checkup) failures(pt *patient, all, fresh int) {
	most := max(c.opts.MaxFailed, 0)
	if all <= most {
		return
	}
	when := "none of them in the last hour"
	if fresh > 0 {
		when = fmt.Sprintf("%d of them in the last hour", fresh)
	}
	c.found(Finding{Kind: findingFailed, Severity: against(c.opts.MaxFailed != 0), Queue: pt.queue.id, Key: pt.queue.keys.Schedule(),
		Text: fmt.Sprintf("%s failed for good, %s. Failed lists them with their reasons; requeue or delete them.", tasks(all, "has", "have"), when)})
}

// tasks is a number of them, with their verb.
func tasks(n int, one, more string) string {
	if n == 1 {
		more = one
	}
	return several(n, "task") + " " + more
}
