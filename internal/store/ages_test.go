package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

// aged is a queue whose tasks were added one by one.
var aged = member.with("token", "=5", "queues", "[a b c]", "ages", "(drift=drift:0 -9m=6 -5m=7 -2m=8)")

// Beats note how many tasks have been added, and drop the notes of tasks that have left.
func TestAges(t *testing.T) {
	run(t, []scenario{
		{name: "the first note", seed: member.with("token", "=5", "queues", "[a b]"), steps: []when{
			{call: beats("w1", false), want: "waiting=2", state: member.with("token", "=5", "queues", "[a b]", "ages", "(drift=drift:0 now=7)")},
			{call: beats("w1", false), want: "waiting=2"}}},
		{name: "no token issued", seed: member.with("queues", "[a]"), steps: []when{
			{call: beats("w1", false), want: "waiting=1", state: member.with("queues", "[a]", "ages", "(drift=drift:0 now=1)")}}},
		{name: "more have come", seed: aged.with("queues", "[a b c d]"), steps: []when{
			{call: beats("w1", false), want: "waiting=4", state: aged.with("queues", "[a b c d]", "ages", "(drift=drift:0 -9m=6 -5m=7 -2m=8 now=9)")}}},
		{name: "no more have come", seed: aged, steps: []when{{call: beats("w1", false), want: "waiting=3", state: aged}}},
		{name: "more have come within a second", seed: aged.with("ages", "(drift=drift:0 now=7)"), steps: []when{
			{call: nearNote, want: "", state: aged.with("ages", "(drift=drift:0 now=7)")}}},
		{name: "the first has left", seed: aged.with("token", "=6", "queues", "[b c]"), steps: []when{
			{call: beats("w1", false), want: "waiting=2", state: aged.with("token", "=6", "queues", "[b c]", "ages", "(drift=drift:0 -5m=7 -2m=8)")}}},
		{name: "one was canceled", seed: aged.with("queues", "[a c]"), steps: []when{
			{call: beats("w1", false), want: "waiting=2", state: aged.with("queues", "[a c]", "ages", "(drift=drift:0 -9m=6 -5m=7 -2m=7)")}}},
		{name: "two were canceled", seed: aged.with("queues", "[c]", "ages", "(drift=drift:0 -9m=4 -5m=7 -2m=8)"), steps: []when{
			{call: beats("w1", false), want: "waiting=1", state: aged.with("queues", "[c]", "ages", "(drift=drift:0 -5m=6)")}}},
		{name: "the list is empty", seed: aged.with("queues", ""), steps: []when{
			{call: beats("w1", false), want: "", state: aged.with("queues", "", "ages", none)}}},
		{name: "a beat returns the first", seed: rawP.with("workers", "(w1=-1m w2=+60m)", "suspects", "(w1=-1m)"), steps: []when{
			{call: beats("w2", true), want: "waiting=1 failed=w1/1 returned=1", state: state{"workers": "(w2=+60m)", "queues": "[a]", "token": "=2", "ledger": "{#a=1}", "ages": "(drift=drift:0 now=3)"}}}},
		{name: "a note of nothing", seed: aged.with("ages", "(drift=drift:0 -9m=0 -5m=6 -2m=8)"), steps: []when{
			{call: beats("w1", false), want: "waiting=3", state: aged.with("ages", "(drift=drift:0 -5m=6 -2m=8)")}}},
	})
}

// nearNote makes a beat within the second of the last note, after one more task was added.
func nearNote(e *env) string {
	for {
		now := e.now()
		e.must(e.conn.Do("DEL", e.q.Ages()))
		e.must(e.conn.Do("ZADD", e.q.Ages(), int64(-ageBase), ageDrift, 7, now))
		e.must(ReadBeat(e.line.Do(e.ctx, BeatCall(e.q, "w1", time.Hour, time.Hour, 0))[0]))
		if e.now()/1000 == now/1000 {
			return ""
		}
	}
}

// Raising the token without taking from the list, and putting a task back there, both add to the
// drift, so that the notes stay correct. Starting and finishing tasks of the list writes nothing.
func TestDrift(t *testing.T) {
	t.Parallel()
	drift := func(n int) string { return fmt.Sprintf("(drift=drift:%d -9m=3)", n) }
	aged := func(s state, list string) state { return s.with("token", "=1", "queues", list, "ages", drift(0)) }
	list, entry, held := aged(member, "[a b]"), aged(keyX, "[a b]"), aged(rawP, "[b c]")
	lapsed := held.with("workers", "(w1=-1m w2=+60m)", "suspects", "(w1=-1m)")
	for _, c := range []struct {
		name string
		seed state
		call func(*env) string
		want string
	}{
		{"two of the list start", list, begins(1, "p1", "p2"), drift(0)},
		{"one of the list ends", held, ends(2, "p1", 1, Finish, Outcome{}), drift(0)},
		{"one from the list is retried", held, ends(2, "p1", 1, Retry, Outcome{Delay: time.Hour}), drift(0)},
		{"an entry starts", entry, begins(1, "p1"), drift(1)},
		{"an entry and two of the list start", entry, begins(1, "p1", "p2", "p3"), drift(1)},
		{"one is stopped", held, ends(2, "p1", 1, Stop, Outcome{}), drift(1)},
		{"one is left to others", list.with("ledger", "{#a=2}"), steps(Round{Worker: "w1", Number: 1, Crashes: 3, Start: []string{"p1", "p2"}}), drift(-1)},
		{"a worker is evicted", held, fails("w1"), drift(2)},
		{"a look evicts one", lapsed, sweeps, drift(2)},
		{"a beat evicts one", lapsed, beats("w2", true), drift(2)},
		{"a worker leaves", held, leaves("w1"), drift(2)},
		{"a worker leaves that hasn't joined", list, leavesBehind("w9", 1), drift(1)},
		{"a check returns one that nobody holds", list.with("process:p9", "[x]"), checks(true, CheckProcesses, "p9"), drift(1)},
		{"a cancel", list, cancels("x"), drift(1)},
		{"a cancel of a key", aged(runX, "[b c]"), cancelsKey("x"), drift(1)},
		{"no notes", entry.with("ages", ""), begins(1, "p1"), ""},
		{"notes of another type", entry.with("ages", "=foreign"), begins(1, "p1"), "=foreign"},
		{"a worker leaves an empty list", member.with("ages", drift(0)), leaves("w1"), ""},
		{"a worker is evicted beside an empty list", member.with("ages", drift(0)), fails("w1"), ""},
		{"a look at an empty list", member.with("ages", drift(0)), sweeps, ""},
		{"a delete", list, deletes, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, way := range []way{wordy, unheard} {
				e := newEnv(t, redistest.URL(), nil)
				e.way = way
				e.seed(c.seed)
				if got := c.call(e); got == "WRONGTYPE" {
					t.Errorf("%s: answered %s", way, got)
				}
				if got := e.look()["ages"]; got != c.want {
					t.Errorf("%s: there is %s, want %s", way, got, c.want)
				}
			}
		})
	}
}

// If there are too many notes, they're thinned out: the newest stays, and each dropped note
// was soon followed by another.
func TestAgesAreThinned(t *testing.T) {
	e := beside(t, member.with("token", "=0", "queues", "["+strings.Repeat("a ", 258)+"]"))
	begin := e.now() - 3_600_000
	at := func(i int64) int64 { return begin + 1000*i + i/100*600_000 } // with two breaks of ten minutes
	args := []any{e.q.Ages(), int64(-ageBase), ageDrift}
	for i := range int64(257) {
		args = append(args, i+1, at(i))
	}
	e.must(e.conn.Do("ZADD", args[:len(args)-2]...)) // the maximum
	beats("w1", false)(e)
	e.is.Equal(e.count("ZCARD", "ages"), 130) // including the drift: every other one is gone
	for i := range int64(256) {
		note := sure(redis.Int64s(e.conn.Do("ZRANGEBYSCORE", e.q.Ages(), i+1, "+inf", "LIMIT", 0, 1)))(t)
		if i < 255 && (note[0] < at(i) || note[0]-at(i) > 2000) {
			t.Errorf("a task added at %d is noted at %d", at(i)-begin, note[0]-begin)
		}
	}
}

// Thinning ends even with notes that parse as numbers but aren't times.
func TestAgesOfNoTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, name := range []string{"nan(%d)", "-inf%.0d", "1%0309d", "0x1p%d"} {
		e := newEnv(t, redistest.URL(), nil)
		e.seed(member.with("token", "=0", "queues", "[a b]"))
		args := []any{e.q.Ages(), int64(-ageBase), ageDrift}
		for i := range 300 {
			args = append(args, 1, fmt.Sprintf(name, i))
		}
		e.must(e.conn.Do("ZADD", args...))
		beats("w1", false)(e)
		is.True(e.count("ZCARD", "ages") < 257)
	}
}

// If another program has written too many or invalid notes, a beat starts over.
func TestForeignAges(t *testing.T) {
	begun := member.with("token", "=5", "queues", "[a]", "ages", "(drift=drift:0 now=6)")
	crowd := make([]string, 600)
	for i := range crowd {
		crowd[i] = fmt.Sprintf("%dm=6", i-999)
	}
	var all []scenario
	for name, ages := range map[string]string{
		"another type": "=foreign", "no drift": "(-5m=6)", "a drift that can't be": "(drift=7 -5m=6)", "one that is too low": "(drift=drift:9 -5m=6)",
	} {
		all = append(all, scenario{name: name, seed: begun.with("ages", ages), steps: []when{{call: beats("w1", false), want: "waiting=1", state: begun}}})
	}
	all = append(all,
		scenario{name: "a token that is no number", seed: begun.with("token", "=x"), steps: []when{
			{call: beats("w1", false), want: "waiting=1", state: begun.with("token", "=x", "ages", none)}}},
		scenario{name: "far too many", seed: begun.with("queues", "[a b]", "ages", "(drift=drift:0 "+strings.Join(crowd, " ")+")"), steps: []when{
			{call: beats("w1", false), want: "waiting=2", state: begun.with("queues", "[a b]", "ages", none)},
			{call: beats("w1", false), want: "waiting=2", state: begun.with("queues", "[a b]", "ages", "(drift=drift:0 now=7)")}}},
		scenario{name: "the last is no time", seed: begun.with("ages", "(drift=drift:0 -5=9)"), steps: []when{
			{call: beats("w1", false), want: "waiting=1", state: begun.with("ages", "(drift=drift:0 now=6 -5=9)")}}},
		scenario{name: "the list is of another type", seed: begun.with("queues", "=foreign"), steps: []when{
			{call: beats("w1", false), want: "", state: begun.with("queues", "=foreign", "ages", none)}}})
	run(t, all)
	t.Run("a drift that only a token beyond all tokens has", func(t *testing.T) {
		e := beside(t, begun.with("token", fmt.Sprint("=", int64(ageBase+5)), "ages", "(drift=0 -5m=6)"))
		beats("w1", false)(e)
		if got := sure(redis.Int64(e.conn.Do("ZSCORE", e.q.Ages(), ageDrift)))(t); got != -ageBase {
			t.Errorf("the drift is %d", got)
		}
	})
}
