package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/words"
)

type enqueueCommand struct {
	onQueue
	Payloads []string `arg:"" optional:"" name:"payload" help:"Payloads, one for each task. Without any, each line of standard input is one, without the carriage return at its end; empty lines are left out."`
	Whole    bool     `help:"All of standard input is one payload, byte for byte."`
	Unique   bool     `help:"Skip payloads that are already waiting or running (only those enqueued with --unique count)."`

	Key someText      `placeholder:"KEY" help:"Enqueue the single payload under this key. A waiting task with the same key is replaced."`
	In  time.Duration `placeholder:"DURATION" help:"Start the tasks after this time, such as 90s or 2h."`
	At  time.Time     `placeholder:"TIME" help:"Start the tasks at this time, such as 2026-01-31T09:00:00Z."`

	Header     headers       `placeholder:"NAME=VALUE" help:"Header of the tasks. May be repeated."`
	Expires    time.Duration `placeholder:"DURATION" help:"Fail the tasks unless they have started within this time."`
	Timeout    time.Duration `placeholder:"DURATION" help:"How long an attempt may run, whatever the handler's options say."`
	MaxRetries *uint         `placeholder:"N" help:"How many times a task may be retried, 0 for none, whatever the handler's options say."`
	KeepResult time.Duration `placeholder:"DURATION" help:"Keep the outcomes and results of the tasks for this long: from 1s to 30 days. See worqr wait."`
	Once       someText      `placeholder:"ID" help:"Add the task only if nothing was added with this id before, so that you may repeat the command."`
	OnceFor    time.Duration `placeholder:"DURATION" help:"How long the id is remembered; the default is 24h, the limit 30 days."`
}

func (c *enqueueCommand) Validate() error {
	one := c.Key != "" || c.Once != ""
	switch {
	case c.In != 0 && !c.At.IsZero():
		return usage("expected --in or --at, not both")
	case c.In < 0 || c.Expires < 0 || c.Timeout < 0 || c.OnceFor < 0 || c.KeepResult < 0:
		return usage("a duration may not be negative")
	case c.KeepResult != 0 && (c.KeepResult < worqr.MinKeepResult || c.KeepResult > worqr.MaxKeepResult):
		return usage("--keep-result must be from 1s to 30 days")
	case c.Whole && len(c.Payloads) > 0:
		return usage("expected payloads or --whole, not both")
	case one && len(c.Payloads) != 1 && !c.Whole:
		return usage("--key and --once need exactly one payload, or --whole")
	case c.Unique && (c.Key != "" || c.KeepResult > 0):
		return usage("--unique can't be combined with --key or --keep-result")
	case c.OnceFor > 0 && c.Once == "":
		return usage("--once-for needs --once")
	}
	return nil
}

// isPlain reports whether payloads are enqueued without anything else.
func (c *enqueueCommand) isPlain() bool {
	return !c.Unique && c.Key == "" && c.Once == "" && c.In == 0 && c.At.IsZero() && len(c.Header) == 0 && c.Expires == 0 && c.Timeout == 0 && c.MaxRetries == nil && c.KeepResult == 0
}

// tasks returns the payloads with what the flags say about them.
func (c *enqueueCommand) tasks(payloads [][]byte) []worqr.TaskSpec {
	all := make([]worqr.TaskSpec, len(payloads))
	for i, payload := range payloads {
		t := worqr.TaskSpec{
			Payload: payload, Key: string(c.Key), At: c.At, Unique: c.Unique, Headers: c.Header, Timeout: c.Timeout, MaxRetries: most(c.MaxRetries),
			KeepResult: c.KeepResult, Once: string(c.Once), OnceFor: c.OnceFor,
		}
		if c.In > 0 {
			t.At = time.Now().Add(c.In)
		}
		if c.Expires > 0 {
			t.Expires = time.Now().Add(c.Expires)
		}
		all[i] = t
	}
	return all
}

func (c *enqueueCommand) Run(ctx context.Context, con *console, f *fleet) (err error) {
	q := f.Queue(string(c.Queue))
	enqueued, left := 0, 0
	result := func() map[string]any { return map[string]any{"enqueued": enqueued, "left_out": left} }
	for batch, err := range c.batches(ctx, con) {
		if err == nil {
			var keys []string
			var n, skipped int
			n, skipped, keys, err = c.send(ctx, q, batch)
			enqueued, left = enqueued+n, left+skipped
			for _, key := range keys {
				err = errors.Join(err, c.tell(con.out, map[string]string{"key": key}, "%s", printable(key)))
			}
		}
		if err != nil {
			done := words.Counted(enqueued, "task") + " enqueued"
			if left > 0 {
				done += ", " + words.Grouped(left) + " left out"
			}
			return c.cutOff(con.out, err, enqueued+left, done, result())
		}
	}
	if c.JSON {
		err = printJSON(con.out, result())
	} else if c.Once != "" {
		con.say("the task was added by this command, or by an earlier one") // Add returns the same key
	} else {
		con.say("%s enqueued", words.Counted(enqueued, "task"))
	}
	if err == nil && left > 0 {
		if !c.JSON {
			con.say("%s skipped: an equal one is waiting or running", words.Counted(left, "task"))
		}
		return errTold
	}
	return err
}

// send enqueues a batch. It returns the number of tasks, of those that it skipped as equal, and the new keys.
func (c *enqueueCommand) send(ctx context.Context, q *worqr.Queue, batch [][]byte) (n, skipped int, keys []string, err error) {
	if c.isPlain() {
		if err := enqueueSurely(ctx, q, batch); err != nil {
			return 0, 0, nil, err
		}
		return len(batch), 0, nil, nil
	}
	each := len(batch)
	if c.Unique { // or a duplicate would keep out the others
		each = 1
	}
	for tasks := range slices.Chunk(c.tasks(batch), each) {
		added, err := add(ctx, q, tasks)
		n += len(added)
		if c.Key == "" && !c.Unique {
			keys = append(keys, added...)
		}
		if errors.Is(err, worqr.ErrDuplicate) {
			skipped++
		} else if err != nil {
			return n, skipped, keys, err
		}
	}
	return n, skipped, keys, nil
}

// add adds tasks in as many calls as their size needs. It returns the keys of the tasks that it
// added.
func add(ctx context.Context, q *worqr.Queue, tasks []worqr.TaskSpec) (keys []string, err error) {
	keys, err = q.Add(ctx, tasks...)
	half := len(tasks) / 2
	if half == 0 || !errors.Is(err, worqr.ErrTooLarge) {
		return keys, err
	}
	if keys, err = add(ctx, q, tasks[:half]); err == nil {
		var more []string
		more, err = add(ctx, q, tasks[half:])
		keys = append(keys, more...)
	}
	return keys, err
}

// tries is how many times a batch is sent if its replies are lost.
const tries = 5

// enqueueSurely enqueues payloads. If the reply is lost, it repeats the call, which has no effect if the first
// one succeeded.
func enqueueSurely(ctx context.Context, q *worqr.Queue, batch [][]byte) (lost error) {
	nonce := rand.Text()
	for range tries {
		_, err := q.EnqueueOnce(ctx, nonce, batch...)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, worqr.ErrUnknownOutcome):
			return errors.Join(lost, err) // an earlier call may have taken effect
		}
		lost = err
	}
	return lost
}

// Limits of one call.
const (
	batchTasks = 1000
	batchBytes = 512 << 10
)

// batches yields the payloads as they arrive, in batches small enough for one call.
func (c *enqueueCommand) batches(ctx context.Context, con *console) iter.Seq2[[][]byte, error] {
	return func(yield func([][]byte, error) bool) {
		if c.Whole {
			payload, err := con.payload(ctx, nil)
			yield([][]byte{payload}, err)
			return
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		lines, failed := make(chan []byte, batchTasks), make(chan error, 1)
		go func() {
			failed <- c.read(ctx, con, lines)
			close(lines)
		}()
		for batch := take(ctx, lines); len(batch) > 0; batch = take(ctx, lines) {
			if !yield(batch, nil) {
				return
			}
		}
		var err error
		select {
		case err = <-failed:
		case <-ctx.Done(): // standard input may block forever
		}
		if err = cmp.Or(ctx.Err(), err); err != nil { // after an interrupt, lines may be left
			yield(nil, err)
		}
	}
}

// take waits for a payload, and returns it with those that have arrived too.
func take(ctx context.Context, lines <-chan []byte) (batch [][]byte) {
	for size := 0; len(batch) < batchTasks && size < batchBytes; {
		var line []byte
		more := false
		select {
		case line, more = <-lines:
		default:
			if len(batch) > 0 {
				return batch
			}
			select {
			case line, more = <-lines:
			case <-ctx.Done():
			}
		}
		if !more {
			return batch
		}
		batch, size = append(batch, line), size+len(line)
	}
	return batch
}

func (c *enqueueCommand) read(ctx context.Context, con *console, lines chan<- []byte) error {
	pass := func(payload []byte) error {
		select {
		case lines <- payload:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, payload := range c.Payloads {
		if err := pass([]byte(payload)); err != nil {
			return err
		}
	}
	if len(c.Payloads) > 0 {
		return nil
	}
	if isTerminal(con.in) {
		con.say("reading payloads from standard input, one per line; press Ctrl-D to end")
	}
	scanner := bufio.NewScanner(con.in)
	scanner.Buffer(nil, worqr.DefaultMaxPayload+1)
	for scanner.Scan() {
		if line := scanner.Bytes(); len(line) > 0 {
			if err := pass(bytes.Clone(line)); err != nil {
				return err
			}
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line has more than %s bytes, the limit of a payload", words.Grouped(worqr.DefaultMaxPayload))
	} else if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}
