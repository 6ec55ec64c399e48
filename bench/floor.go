package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// A floor does what any queue with this layout must do: it has a list of waiting tasks, a list for
// each running task, and an index of these for the worker. It has only trivial handlers, sends no
// notifications, and recovers nothing.
type floor struct {
	url  string
	conn redis.Conn // for counting
	ids  atomic.Int64
}

const (
	floorWaiting = "worqr:queues:{q0}"
	floorWorking = "worqr:working:{q0}:01890000-0000-7000-8000-000000000000"
	floorBatch   = 100
	floorLanes   = 2 // connections, each with a batch in flight
)

func openFloor(t testing.TB, url string, _ []string) system {
	return &floor{url: url, conn: redistest.Dial(t, url)}
}

// producer makes a new connection, and pushes all payloads with one command.
func (f *floor) producer(t testing.TB, _ string) func([][]byte) error {
	c := redistest.Dial(t, f.url)
	return func(payloads [][]byte) error {
		_, err := c.Do("LPUSH", redis.Args{floorWaiting}.AddFlat(payloads)...)
		return err
	}
}

func (f *floor) work(t testing.TB, _ int, handle func([]byte)) {
	for range floorLanes {
		c := redistest.Dial(t, f.url)
		go func() {
			if err := f.drain(c, handle); err != nil {
				fmt.Fprintln(os.Stderr, "floor:", err) // the wait for its tasks will time out
			}
		}()
	}
}

// drain works until no task waits.
func (f *floor) drain(c redis.Conn, handle func([]byte)) error {
	for {
		processes := f.processes(floorBatch)
		tasks, err := startAll(c, processes)
		if err != nil {
			return err
		}
		for _, t := range tasks {
			handle(t)
		}
		if err := endAll(c, processes); err != nil {
			return err
		}
		if len(tasks) == 0 {
			return nil
		}
	}
}

// processes returns keys for n tasks, as long as the library's.
func (f *floor) processes(n int) []any {
	keys := make([]any, n)
	last := f.ids.Add(int64(n))
	for i := range keys {
		keys[i] = fmt.Sprintf("worqr:process:{q0}:01890000-0000-7000-8000-%012x", last-int64(i))
	}
	return keys
}

func (f *floor) left(t testing.TB) int {
	waiting := redistest.Sure(redis.Int(f.conn.Do("LLEN", floorWaiting)))(t)
	return waiting + redistest.Sure(redis.Int(f.conn.Do("SCARD", floorWorking)))(t)
}

var (
	startScript = redis.NewScript(2, `
local started = {}
for _, process in ipairs(ARGV) do
	local task = redis.call('RPOPLPUSH', KEYS[1], process)
	if not task then break end
	redis.call('SADD', KEYS[2], process)
	started[#started + 1] = task
end
return started`)
	endScript = redis.NewScript(1, `
for _, process in ipairs(ARGV) do
	if redis.call('SREM', KEYS[1], process) == 1 then redis.call('DEL', process) end
end`)
)

func startAll(c redis.Conn, processes []any) ([][]byte, error) {
	return redis.ByteSlices(startScript.Do(c, redis.Args{floorWaiting, floorWorking}.Add(processes...)...))
}

func endAll(c redis.Conn, processes []any) error {
	_, err := endScript.Do(c, redis.Args{floorWorking}.Add(processes...)...)
	if errors.Is(err, redis.ErrNil) {
		err = nil
	}
	return err
}
