package store

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/matryer/is"
	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/redistest"
)

// flaws checks all of a queue, and returns the flaws: "stuck k:a".
func (b *bench) flaws() (all []string) {
	b.Helper()
	for _, f := range b.examine() {
		all = append(all, strings.TrimSpace(string(f.Flaw)+" "+f.Name))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (b *bench) examine() (all []invariants.Found) {
	b.Helper()
	see := func(kind, cursor, holder string, names ...string) string {
		b.Helper()
		p, next, err := Check(b.Context(), b.line, b.q, kind, cursor, names)
		if err != nil {
			b.Fatalf("%s: %v", kind, err)
		}
		for i := range p.Attempts {
			p.Attempts[i].Holder = holder
		}
		all = append(append(all, p.Queue.Judge()...), p.Judge()...)
		return next
	}
	held := map[string]bool{}
	for _, worker := range b.parts("working:") {
		see(Holders, "", "", worker)
		for _, id := range redistest.Sure(redis.Strings(b.conn.Do("ZRANGE", b.key("working:"+worker), 0, -1)))(b) {
			see(Attempts, "", worker, id)
			held[id] = true
		}
	}
	for _, id := range b.parts("process:") {
		if !held[id] {
			see(Attempts, "", "", id)
		}
	}
	for _, kind := range Examined {
		for cursor := see(kind, "0", ""); cursor != "0"; {
			cursor = see(kind, cursor, "")
		}
	}
	return all
}

// parts returns the last parts of keys: of process: all attempts that have a list.
func (b *bench) parts(kind string) (all []string) {
	b.Helper()
	prefix, _, _ := strings.Cut(b.key(""), "::")
	for _, key := range redistest.Keys(b, b.conn, prefix) {
		if part, ok := strings.CutPrefix(key, b.key(kind)); ok {
			all = append(all, part)
		}
	}
	return all
}

// repair mends all flaws, and returns tasks.
func (b *bench) repair() (mended []string) {
	b.Helper()
	for _, f := range b.examine() {
		if !slices.Contains(mendable, f.Flaw) {
			continue
		}
		ok, err := Repair(b.Context(), b.line, b.q, f)
		if !IsWrongType(err) {
			b.is.NoErr(err)
		}
		if ok {
			mended = append(mended, string(f.Flaw))
		}
	}
	for len(mended) > 0 {
		look, err := Evict(b.Context(), b.line, b.q, "", 0, time.Second)
		b.is.NoErr(err)
		if look.Wait != 0 {
			break
		}
	}
	return mended
}

var mendable = []invariants.Flaw{
	invariants.Unowned, invariants.Stuck, invariants.Stray, invariants.Dead, invariants.Token, invariants.Place, invariants.Ahead,
}

// A queue that worker w serves: it runs a raw task, one with a key, behind which another one waits, and
// one that waited for a retry. Named tasks wait in all ways, and a schedule is asserted.
var sound = []string{
	"HSET state token 9 place 9 lease 60000 fence 1",
	"ZADD workers <now+50000> w", "HSET rounds w 1", "ZADD idle 1 w",
	"ZADD working:w 3 w.1.9.1 -4 w.1.9.2n 5 w.1.9.3n",
	"RPUSH process:w.1.9.1 a", "RPUSH process:w.1.9.2n k:run", "RPUSH process:w.1.9.3n r:<b>:3",
	"HSET runs k:run w.1.9.2n:0:1: r:<b>:3 w.1.9.3n:1:0:why k:later :2:0:why", "HSET next k:run 0:always:0:0:1:0:0:0:0:0:B",
	"HSET tasks k:run 1:0:0:0:0:0:A r:<b>:3 0:0:0:0:0:0:b k:later 1:0:0:0:0:0:C k:ready 1:0:0:0:0:0:D r:<c>:4 0:0:0:0:0:0:c k:plan <occurrence>",
	"ZADD copies 0 r:<b>:3 0 r:<c>:4", "ZADD ready 5 k:ready", "ZADD schedule 99999999999999 k:later <now+50000> k:plan", "ZADD risky 4 r:<c>:4",
	"ZADD recurring <now+30000> k:plan",
	"HSET recurrence k:plan <now+50000>~99999999999998|0:0:0:0:0:0:E passed:k:plan 5 prints:k:plan 9~1:ab:5",
	"LPUSH queues x y",
	"ZADD leaving 1 v", "ZADD working:v 2 v.1.9.1", "RPUSH process:v.1.9.1 z",
}

// expand fills in times and digests.
func expand(command string) string {
	now := time.Now().UnixMilli()
	command = strings.ReplaceAll(command, "<occurrence>", fmt.Sprintf("1:%d:0:0:1:0:E", now+50000))
	for _, text := range []string{"a", "b", "c"} {
		command = strings.ReplaceAll(command, "<"+text+">", DigestOf([]byte(text)))
	}
	for {
		before, rest, ok := strings.Cut(command, "<now+")
		if !ok {
			return command
		}
		ms, after, _ := strings.Cut(rest, ">")
		command = before + strconv.FormatInt(now+numberIn(ms), 10) + after
	}
}

func (b *bench) plant(commands ...string) {
	b.Helper()
	for _, c := range commands {
		b.do(expand(c))
	}
}

// Each flaw is found, and nothing else. The repair mends what can be mended, loses no task, and mends
// nothing else.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		does  string // what another program, or a Redis that loses writes, does
		flaw  string
		heals bool
		shows string // after the repair: a command, and its answer
	}{
		{does: "ZREM working:w w.1.9.1", flaw: "unowned w.1.9.1", heals: true, shows: "LRANGE queues 0 -1 = y x a z"},
		{does: "ZREM working:w w.1.9.2n", flaw: "unowned w.1.9.2n", heals: true, shows: "HMGET tasks k:run = 1:0:0:0:0:0:B"},
		{does: "ZREM working:w w.1.9.3n", flaw: "unowned w.1.9.3n", heals: true, shows: "ZRANGE ready 0 -1 = r:<b>:3 k:ready"},
		{does: "RPUSH process:old a", flaw: "unowned old", heals: true, shows: "LRANGE queues 0 -1 = y x a z"},
		{does: "RPUSH process:w.1.8.1n k:ready", flaw: "unowned w.1.8.1n", heals: true, shows: "ZRANGE ready 0 -1 = k:ready"},
		{does: "HSET runs k:ready w.9.9.9n:1:2:why ; ZREM ready k:ready", flaw: "stuck k:ready", heals: true, shows: "HMGET runs k:ready = :1:2:why"},
		{does: "ZADD working:u 6 u.1.9.1 ; RPUSH process:u.1.9.1 a", flaw: "stray u", heals: true, shows: "LRANGE queues 0 -1 = y x a z"},
		{does: "HSET state token 4", flaw: "token w", heals: true, shows: "HGET state token = 5"},
		{does: "HSET state fence 99", flaw: "token", heals: true, shows: "HGET state token = 99"},
		{does: "HSET state place 4", flaw: "place", heals: true, shows: "HGET state place = 5"},
		{does: "ZADD workers 99999999999999 d ; HSET rounds d 1", flaw: "dead d", heals: true, shows: "ZRANGE workers 0 -1 = w"},
		{does: "ZADD recurring <now+9999999> k:plan", flaw: "ahead k:plan", heals: true, shows: "ZRANGE schedule 0 -1 = k:plan k:later"},
		{does: "HSET recurrence passed:k:plan 99999999999999", flaw: "ahead k:plan", heals: true, shows: "ZRANGE schedule 0 -1 = k:plan k:later"},
		{does: "HSET recurrence passed:k:plan 99999999999998"}, // a known time that was taken away

		{does: "DEL process:w.1.9.1", flaw: "no-list w.1.9.1"},
		{does: "HDEL tasks k:run", flaw: "no-record k:run"},
		{does: "HDEL tasks k:ready", flaw: "no-record k:ready"},
		{does: "HDEL tasks k:later", flaw: "no-record k:later"},
		{does: "HSET state token x", flaw: "token"},
		{does: "ZREM ready k:ready", flaw: "nowhere k:ready"},
		{does: "ZADD ready 3 k:later", flaw: "twice k:later"},
		{does: "ZADD ready 3 k:run", flaw: "twice k:run"},
		{does: "HSET tasks k:ready foreign", flaw: "damaged k:ready"},
		{does: "HSET tasks k:ready 1:0:0:0:0:99:x", flaw: "damaged k:ready"},
		{does: "HSET runs k:later x", flaw: "damaged k:later"},
		{does: "HSET next k:run 5:always:B", flaw: "damaged k:run"},
		{does: "HSET next k:run 5:always:0:0:B", flaw: "damaged k:run"},
		{does: "ZADD working:w 6 u.1.9.1 ; RPUSH process:u.1.9.1 a", flaw: "stranger u.1.9.1"},
		{does: "RPUSH process:w.1.8.1n k:run ; ZADD working:w 6 w.1.8.1n", flaw: "second-run w.1.8.1n"},
		{does: "HSET next k:ready 0:always:0:0:1:0:0:0:0:0:B", flaw: "behind-nothing k:ready"},
		{does: "ZREM copies r:<b>:3", flaw: "no-copy r:<b>:3"},
		{does: "ZADD copies 0 k:ready", flaw: "no-copy k:ready"},
		{does: "ZADD copies 0 r:<a>:7", flaw: "leftover r:<a>:7"},
		{does: "HSET runs k:gone :1:0:why", flaw: "leftover k:gone"},
		{does: "ZADD idle 1 g", flaw: "ghost g"},
		{does: "ZADD suspects 1 g", flaw: "ghost g"},
		{does: "HSET rounds g 1", flaw: "ghost g"},
		{does: "HDEL rounds w", flaw: "half-member w"},
		{does: "ZADD leaving 0 w", flaw: "half-member w"},
		{does: "ZREM recurring k:plan", flaw: "half-schedule k:plan"},
		{does: "HDEL recurrence prints:k:plan", flaw: "half-schedule k:plan"},
		{does: "HDEL recurrence k:plan", flaw: "half-schedule k:plan"},
	} {
		t.Run(c.does, func(t *testing.T) {
			b := newBench(t)
			b.plant(sound...)
			b.is.Equal(b.flaws(), nil)
			b.plant(strings.Split(c.does, " ; ")...)
			var want []string
			if c.flaw != "" {
				want = []string{expand(c.flaw)}
			}
			for range 2 { // it changes nothing
				b.is.Equal(b.flaws(), want)
			}
			if c.flaw == "" {
				return
			}
			mended := b.repair()
			flaw, _, _ := strings.Cut(c.flaw, " ")
			b.is.Equal(slices.Contains(mended, flaw), c.heals)
			if !c.heals {
				return
			}
			b.is.Equal(b.flaws(), nil)
			command, answer, _ := strings.Cut(c.shows, " = ")
			b.is.Equal(strings.Trim(fmt.Sprintf("%s", b.do(expand(command))), "[]"), expand(answer))
			again := b.repair()
			b.is.Equal(again, nil)
		})
	}
}

// A place that no counter can reach is reported, and a repair doesn't make the state unreadable.
func TestRepairOfHugePlace(t *testing.T) {
	b := newBench(t)
	b.plant(sound...)
	b.plant("ZADD ready 1152921504606846976 k:ready")
	b.is.Equal(b.repair(), nil)
	b.is.Equal(b.flaws(), []string{"place"})
	b.add(task("more", "m"))
}

func TestCompareStarts(t *testing.T) {
	ids := []string{"w.9.98.1", "a.5.99.1", "w.1.99.2n", "w.9.99.8", "w.9.99.98n", "w.9.99.99", "w.10.99.1", "a.1.100.1"}
	is.New(t).Equal(slices.SortedFunc(slices.Values(slices.Sorted(slices.Values(ids))), CompareStarts), ids)
}

// A page of check ends after 1 MiB of records, also of those that it doesn't describe: a scan of a hash reads them, too.
func TestCheckLargeRecords(t *testing.T) {
	b := newBench(t)
	for i := range 30 {
		name := fmt.Sprint("k:", i)
		redistest.Do(t, b.conn, "HSET", b.key("tasks"), name, "0:0:0:0:0:0:x")
		redistest.Do(t, b.conn, "HSET", b.key("next"), name, "0:always:0:0:0:0:0:0:0:0:"+strings.Repeat("x", 200<<10))
	}
	pages := 0
	for cursor := ""; cursor != "0"; pages++ {
		_, next, err := Check(t.Context(), b.line, b.q, "next", cmp.Or(cursor, "0"), nil)
		b.is.NoErr(err)
		cursor = next
	}
	b.is.True(pages >= 4)
}
