package store

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

// A lane is all there is of a queue.
type lane struct {
	list     []string // front first
	working  map[string]string
	process  map[string]string
	keyed    map[string]map[string]string
	entries  map[string]string
	unique   map[string]string
	gaps     map[string]string
	canceled map[string]string
	schedule map[string]string
	contents map[string]string
}

func (e *env) lane(q keys.Queue) *lane {
	e.t.Helper()
	pairs := func(command, key string, args ...any) map[string]string {
		m, err := redis.StringMap(e.conn.Do(command, append([]any{key}, args...)...))
		e.must(nil, err)
		return m
	}
	scores := func(key string) map[string]string { return pairs("ZRANGE", key, 0, -1, "WITHSCORES") }
	l := &lane{
		working: map[string]string{}, process: map[string]string{}, keyed: map[string]map[string]string{},
		entries: pairs("HGETALL", q.Entries()), unique: pairs("HGETALL", q.Unique()),
		gaps: scores(q.Gaps()), canceled: scores(q.Canceled()), schedule: scores(q.Schedule()), contents: scores(q.Contents()),
	}
	list, err := redis.Strings(e.conn.Do("LRANGE", q.Waiting(), 0, -1))
	e.must(nil, err)
	for _, p := range list {
		l.list = append([]string{p}, l.list...)
	}
	head, _ := q.Around()
	for _, k := range redistest.Keys(e.t, e.conn, strings.TrimSuffix(head, ":")) {
		if id, ok := strings.CutPrefix(k, q.Process("")); ok {
			l.process[id] = strings.Join(e.must(redis.Strings(e.conn.Do("LRANGE", k, 0, -1))).([]string), "|")
		} else if worker, ok := strings.CutPrefix(k, q.Working("")); ok {
			for id, token := range scores(k) {
				l.working[id] = worker + " " + token
			}
		} else if entry, ok := strings.CutPrefix(k, q.Keyed("")); ok {
			l.keyed[entry] = pairs("HGETALL", k)
		}
	}
	return l
}

func (l *lane) tasks() (n int) {
	n = len(l.list) + len(l.process)
	for _, k := range l.keyed {
		if _, waits := k["payload"]; waits {
			n++
		}
	}
	return n
}

// wrong says what of the invariants does not hold.
func (l *lane) wrong() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for id := range l.working {
		if _, ok := l.process[id]; !ok {
			say("%s is in a working set and has no list", id)
		}
	}
	for id := range l.process {
		if _, ok := l.working[id]; !ok {
			say("the list of %s is in no working set", id)
		}
	}
	for id, entry := range l.entries {
		if _, ok := l.working[id]; !ok || l.keyed[entry]["process"] != id {
			say("%s is said to run %s, which knows %q", id, entry, l.keyed[entry]["process"])
		}
	}
	waiting := 0
	for entry, k := range l.keyed {
		payload, waits := k["payload"]
		process, runs := k["process"]
		_, planned := l.schedule[entry]
		_, blocks := k["low"]
		if runs && l.entries[process] != entry {
			say("%s is said to be run by %s, which runs %q", entry, process, l.entries[process])
		}
		if waits {
			waiting++
			if _, ok := l.contents[digest(payload)+":"+entry]; !ok {
				say("what waits in %s is not in contents", entry)
			}
		}
		if waits != (planned || runs && waits) || planned && runs || blocks != (waits && runs) {
			say("%s: waits %t, runs %t, planned %t, blocks %t", entry, waits, runs, planned, blocks)
		}
		if due, err := strconv.ParseFloat(l.schedule[entry], 64); planned && (err != nil || k["due"] != l.schedule[entry] && fmt.Sprintf("%.0f", due) != k["due"]) {
			say("%s is due %s and planned for %s", entry, k["due"], l.schedule[entry])
		}
	}
	if len(l.contents) != waiting {
		say("%d entries wait, %d are in contents", waiting, len(l.contents))
	}
	for entry := range l.schedule {
		if _, ok := l.keyed[entry]["payload"]; !ok {
			say("%s is planned and has nothing that waits", entry)
		}
	}
	offset, _ := strconv.Atoi(l.unique["offset"])
	for d, where := range l.unique {
		kind, at, _ := strings.Cut(where, ":")
		var payload string
		switch kind {
		case "w":
			n, err := strconv.Atoi(at)
			steps := n - offset
			for gap := range l.gaps {
				if g, _ := strconv.Atoi(gap); g < n {
					steps--
				}
			}
			if err == nil && steps >= 0 && steps < len(l.list) {
				payload = l.list[steps]
			}
		case "p":
			payload = l.process[at]
		case "e":
			payload = l.keyed[at]["payload"]
		}
		if d != "offset" && digest(payload) != d || len(l.unique) == 1 {
			say("the lock %s of %s is not where it says", where, name(d))
		}
	}
	return all
}

// Whatever is done in whatever order, no task is lost, none is there twice,
// nobody holds what nobody knows of, and in the end nothing is left.
func TestSound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, redistest.URL(), nil)
			r := rand.New(rand.NewPCG(seed, 7))
			pick := func(all ...string) string { return all[r.IntN(len(all))] }
			rounds, member, ids := map[string]int64{}, map[string]bool{}, 0
			payload := func() string { return pick("a", "b", "c", "d", "e", "f") }
			do := func(q keys.Queue, worker string) (said string, delta int) {
				before := e.lane(q)
				rounds[worker]++
				round := Round{Worker: worker, Number: rounds[worker], Idle: r.IntN(2) == 0, Crashes: 2 + r.IntN(2), Solo: r.IntN(2) == 0, Keep: 100}
				for id, held := range before.working {
					who, score, _ := strings.Cut(held, " ")
					if who != worker || r.IntN(2) == 0 {
						continue
					}
					token, err := strconv.ParseInt(score, 10, 64)
					e.must(nil, err)
					verb := Ending(pick("finish", "drop", "stop", "retry", "fail", "retry"))
					o := Outcome{Process: id, Token: token, Plain: before.entries[id] == "" && r.IntN(2) == 0, Verb: verb, Kind: Failed, Reason: "r", Delay: time.Duration(r.IntN(2)) * time.Hour}
					round.Outcomes = append(round.Outcomes, o)
					delta -= before.ended(id, token, verb, q.IsFailed())
				}
				slices.SortStableFunc(round.Outcomes, func(a, b Outcome) int { return cmp.Compare(a.Rank(), b.Rank()) })
				for range r.IntN(4) {
					ids++
					round.Start = append(round.Start, fmt.Sprint("p", ids))
				}
				a, err := Step(e.ctx, e.line, q, &round)
				if err != nil {
					t.Fatal(err)
				}
				for i, s := range a.Settled {
					if s == Gone || s == Refused {
						t.Fatalf("%+v was %s: %s", round.Outcomes[i], s, a.Trouble)
					}
				}
				round.Said = a.Seen // whatever it covers ends, and the search sees to the rest
				after := e.lane(q)
				for i, s := range a.Started {
					if got := after.process[round.Start[i]]; got != string(s.Payload) {
						t.Fatalf("%s runs %q, and %q was told", round.Start[i], got, s.Payload)
					}
				}
				again, err := Step(e.ctx, e.line, q, &round) // lost, and repeated
				if err != nil || len(again.Started) != len(a.Started) {
					t.Fatal("repeated: ", err, again)
				}
				return fmt.Sprintf("%s step %v start %v", worker, round.Outcomes, round.Start), delta
			}
			total := 0
			for i := range 200 {
				q := e.q
				worker := pick("w1", "w2")
				if r.IntN(5) == 0 {
					q, worker = e.q.Failed(), "f1"
				}
				if !member[worker] {
					if got := joinsAt(e, q, worker, rounds[worker]+1); got != "ok" {
						t.Fatal(got)
					}
					rounds[worker]++
					member[worker] = true
				}
				before := e.lane(e.q)
				said, delta := "", 0
				key, p := pick("x", "y", "z"), payload()
				on := *e
				on.q = q
				switch op := r.IntN(20); op {
				case 0, 1:
					said, delta = "enqueue "+p+enqueues(p)(e), 1
				case 2, 3:
					if said = enqueuesUnique(p)(e); said == "ok" {
						delta = 1
					}
					said = "unique " + p + " " + said
				case 4, 5, 6, 7:
					how := []string{pick("always", "never", "later", "earlier")}
					if r.IntN(3) == 0 {
						how = append(how, "keep")
					}
					if r.IntN(3) == 0 {
						how = append(how, "counts")
					}
					due := pick("", "-5m", "+5m")
					said = fmt.Sprint("put ", key, p, due, how, sets(key, p, due, how...)(e))
					if _, waits := before.keyed["k:"+key]["payload"]; !waits {
						delta = 1
					}
				case 8:
					said = "remove " + key + removes("k:"+key)(e)
					if strings.HasSuffix(said, "true") {
						delta = -1
					}
				case 9:
					c, err := CancelKey(e.ctx, e.line, e.q, "k:"+key)
					e.must(nil, err)
					said, delta = "cancel key "+key, -c.Removed
				case 10:
					c, err := Cancel(e.ctx, e.line, e.q, []byte(p))
					e.must(nil, err)
					said, delta = "cancel "+p, -c.Removed
				case 11:
					failed := e.lane(e.q.Failed())
					var graves []string
					for g := range failed.keyed {
						graves = append(graves, g)
					}
					said = fmt.Sprint("requeue ", graves, requeues(graves...)(e))
				case 12, 13:
					l := e.lane(q)
					for id, held := range l.working {
						if who, score, _ := strings.Cut(held, " "); who == worker {
							token, err := strconv.ParseInt(score, 10, 64)
							e.must(nil, err)
							delta -= l.ended(id, token, Stop, q.IsFailed())
						}
					}
					if op == 12 {
						said = worker + " fails " + fails(worker)(&on)
					} else {
						said = worker + " leaves " + leaves(worker)(&on)
					}
					delete(member, worker)
				case 14:
					if r.IntN(4) == 0 {
						said, delta = "delete "+deletes(e), -before.waits()
					}
				default:
					said, delta = do(q, worker)
				}
				l, f := e.lane(e.q), e.lane(e.q.Failed())
				wrong := append(l.wrong(), f.wrong()...)
				now := l.tasks() + f.tasks()
				if now != total+delta {
					wrong = append(wrong, fmt.Sprintf("there were %d tasks, %+d, and are %d", total, delta, now))
				}
				if wrong != nil {
					t.Fatalf("after %d: %s\n%s", i, said, strings.Join(wrong, "\n"))
				}
				total = now
			}
			// The end: what waits is dropped, what runs goes back and is dropped too.
			for _, q := range []keys.Queue{e.q, e.q.Failed()} {
				on := *e
				on.q = q
				for _, worker := range []string{"w1", "w2", "f1"} {
					leaves(worker)(&on)
				}
				deletes(&on)
			}
			for k, v := range e.look() {
				if k := strings.TrimPrefix(k, "failed:"); k != "token" && !(strings.HasPrefix(k, "cancel:") && strings.Contains(v, "} ")) {
					t.Errorf("%s is left: %s", k, v)
				}
			}
		})
	}
}

func joinsAt(e *env, q keys.Queue, worker string, round int64) string {
	on := *e
	on.q = q
	return joinsBehind(worker, 1<<50, round)(&on)
}

func (l *lane) waits() int { return l.tasks() - len(l.process) }

// ended is how many tasks there are less when a process ends so.
func (l *lane) ended(id string, token int64, verb Ending, failed bool) int {
	if verb == Finish || verb == Drop {
		return 1
	}
	entry := l.entries[id]
	for _, name := range []string{digest(l.process[id]), entry} {
		if at, err := strconv.ParseInt(l.canceled[name], 10, 64); err == nil && token <= at && (name != entry || strings.HasPrefix(entry, "k:")) {
			return 1
		}
	}
	if _, blocked := l.keyed[entry]["payload"]; blocked && (verb != Fail || failed) {
		return 1 // the two become one
	}
	return 0
}
