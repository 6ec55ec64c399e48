package search

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/keys"
)

// A codec stores the search's model of Redis in a keyspace, and reads it back.
//
// Equal payloads are distinguished by their address in memory: the specification moves them, and makes no new
// ones. A process or a worker is named by its number, and the entry of a retried task by its task; a new entry
// by its process, until it is read.
type codec struct {
	scope    *scope
	without  spec.Guard
	payloads [maxTasks + 1]string
	tasks    map[*byte]uint8
	names    [2]string // of the cancels: of the payload, and of the key
}

const (
	prefix  = "worqr"
	theKey  = "k:key"
	term    = 1000 // ms of a lease, and until what comes later
	deposit = 64   // the lowest token; fences are below
)

var (
	queue = keys.NewSpace(prefix).Queue("q")
	now   = time.UnixMilli(1_000_000)
	ms    = float64(now.UnixMilli())
)

func newCodec(sc *scope, without spec.Guard) *codec {
	c := &codec{scope: sc, without: without, tasks: map[*byte]uint8{}}
	c.names = [2]string{lane.Digest(string(sc.cancels)), c.entryName(sc.keyed())}
	for i, t := range sc.tasks {
		payload := strings.Clone(string(t.payload))
		c.payloads[i+1], c.tasks[unsafe.StringData(payload)] = payload, uint8(i+1)
	}
	return c
}

func (c *codec) task(payload string) uint8 {
	t := c.tasks[unsafe.StringData(payload)]
	if t == 0 {
		panic("the specification has made a payload")
	}
	return t
}

func workerID(w int) string    { return "W" + strconv.Itoa(w) }
func processID(p uint8) string { return fmt.Sprintf("p%02d", p) }

// numbered parses a name that ends in a number.
func numbered(name, head string) int {
	rest, ok := strings.CutPrefix(name, head)
	n, err := strconv.Atoi(rest)
	if !ok || err != nil {
		panic(fmt.Sprintf("the search does not know %q", name))
	}
	return n
}

// entryOf returns the number of an entry. One that the call has made is named by its process.
func (c *codec) entryOf(name string, was *redis) int {
	for i := range c.scope.tasks {
		if c.scope.tasks[i].added && name == c.entryName(i+1) {
			return i + 1
		}
	}
	switch {
	case name == theKey:
		return 0
	case strings.HasPrefix(name, "r:p"):
		return int(was.process[numbered(name, "r:p")-1].task)
	}
	return numbered(name, "r:t")
}

func tokenText(t uint8) string { return strconv.Itoa(deposit + int(t)) }

// tokenOf returns a token; 0 for anything below the lowest.
func tokenOf(score float64) uint8 { return uint8(max(score-deposit, 0)) }

type (
	hash = map[string]string
	zset = map[string]float64
)

// store stores a model of Redis in a keyspace.
func (c *codec) store(r *redis) *spec.Store {
	s := spec.New()
	s.Clock = func() time.Time { return now }
	s.Without(c.without)
	s.Returns = chunk
	if c.scope.pages {
		s.Copies, s.Entries = 1, 1
	}
	s.Set(queue.Token(), tokenText(r.token))
	var waiting []string
	for _, t := range slices.Backward(r.waiting[:]) {
		if t != 0 {
			waiting = append(waiting, c.payloads[t])
		}
	}
	if len(waiting) > 0 {
		s.Set(queue.Waiting(), waiting)
	}
	c.putWorkers(s, r)
	c.putEntries(s, r)
	c.putAdded(s, r)
	canceled, stopping := zset{}, zset{}
	for name, token := range r.cancel {
		if token > 0 {
			canceled[c.names[name]] = float64(deposit + int(token))
		}
	}
	for i, by := range r.stopping {
		for name, token := range by {
			if token > 0 {
				stopping[spec.StoppingAs(c.names[name], deposit+int64(token), processID(uint8(i+1)))] = 0
			}
		}
	}
	put(s, queue.Canceled(), canceled)
	put(s, queue.Stopping(), stopping)
	return s
}

// put stores m under a key unless it's empty.
func put[M ~map[string]V, V any](s *spec.Store, key string, m M) {
	if len(m) > 0 {
		s.Set(key, m)
	}
}

// putWorkers stores the members, and what they hold.
func (c *codec) putWorkers(s *spec.Store, r *redis) {
	workers, suspects, holders, rounds := zset{}, zset{}, zset{}, hash{}
	var working [maxWorkers]zset
	for w := range maxWorkers {
		id := workerID(w)
		switch r.member[w] {
		case fresh:
			workers[id] = ms + term
		case lapsed:
			workers[id] = ms - 1
		}
		switch r.suspect[w] {
		case suspected:
			suspects[id] = ms
		case failed:
			suspects[id] = 0
		case parted:
			suspects[id] = -1
		}
		if r.holder[w].there {
			holders[id] = float64(deposit + int(r.holder[w].said))
		}
		if r.round[w] > 0 {
			rounds[id], rounds["fence"] = strconv.Itoa(int(r.round[w])), strconv.Itoa(int(r.fence))
		}
		working[w] = zset{}
	}
	entries := hash{}
	for i, p := range r.process {
		id := processID(uint8(i + 1))
		if p.token > 0 {
			working[workerOf(uint8(i+1))][id] = float64(deposit + int(p.token))
		}
		if p.task > 0 {
			s.Set(queue.Process(id), []string{c.payloads[p.task]})
		}
		switch {
		case p.added:
			value, name, runner := tie(p.task, uint8(i+1))
			entries[id], entries[name] = value, runner
		case p.entry > 0:
			entries[id] = c.entryName(int(p.entry) - 1)
		}
	}
	put(s, queue.Workers(), workers)
	put(s, queue.Suspects(), suspects)
	put(s, queue.Holders(), holders)
	put(s, queue.Rounds(), rounds)
	put(s, queue.Entries(), entries)
	for w, held := range working {
		put(s, queue.Working(workerID(w)), held)
	}
}

// putEntries stores the schedule, and what runs from it.
func (c *codec) putEntries(s *spec.Store, r *redis) {
	schedule, contents := zset{}, zset{}
	for i, e := range r.entry {
		name, about := c.entryName(i), hash{}
		if e.process > 0 && r.process[e.process-1].added {
			continue // it came from the stream
		}
		due := ms
		switch {
		case e.later:
			due = ms + term
		case e.score > 0:
			due = float64(deposit + int(e.score))
		}
		if e.planned {
			schedule[name] = due
		}
		if e.task > 0 {
			payload := c.payloads[e.task]
			digest := c.digest(i, payload)
			contents[digest+":"+name] = 0
			about = hash{"payload": payload, "due": strconv.Itoa(int(due)), "retries": "0", "crashes": "0"}
			if digest != lane.Digest(payload) {
				about["digest"], about["card"] = digest, "0"
			}
		}
		if e.process > 0 {
			about["process"], about["tried"], about["died"] = processID(e.process), "0", "0"
			about["holder"] = workerID(workerOf(e.process))
			if digest := c.digest(i, ""); digest != lane.Digest("") {
				about["sum"], about["held"] = processID(e.process)+":"+digest, "0"
			}
		}
		if e.task > 0 && e.process > 0 { // put has stored it
			time := strconv.Itoa(int(ms))
			about["keep"], about["counts"], about["low"], about["high"] = strconv.Itoa(bit(e.keep)), "0", time, time
		}
		put(s, queue.Keyed(name), about)
	}
	put(s, queue.Schedule(), schedule)
	put(s, queue.Contents(), contents)
}

func bit(on bool) int {
	if on {
		return 1
	}
	return 0
}

// read reads the model from a keyspace after a call. It ignores counts: of retries, of deaths, of stopped
// processes. Nothing here depends on them, nor on the name of a fence, which in Redis is a token.
func (c *codec) read(s *spec.Store, was *redis, q *query) (r redis) {
	r.fence = was.fence
	for _, key := range s.Keys() {
		_, _, kind, of, _ := lane.Place(prefix+":", key)
		switch v := s.Get(key).(type) {
		case string:
			if kind != "token" {
				panic("the search does not know " + key)
			}
			n, _ := strconv.Atoi(v)
			r.token = tokenOf(float64(n))
		case []string:
			c.readList(&r, kind, of, v)
		case [][]string:
			for i, item := range v {
				r.added[i] = c.task(item[2])
			}
		case hash:
			c.readHash(&r, was, kind, of, v)
		case zset:
			c.readSet(&r, was, kind, of, v)
		}
	}
	if q.fences() && r.token > was.token {
		r.fence, r.token = was.fence+1, was.token
	}
	for i := range r.entry {
		if e := &r.entry[i]; e.process == 0 {
			e.keep = false
		}
	}
	return r
}

func (c *codec) readList(r *redis, kind, of string, v []string) {
	switch {
	case kind == "queues":
		for i, payload := range v {
			r.waiting[len(v)-1-i] = c.task(payload)
		}
	case kind == "process": // an id that was started twice has two; that is recorded
		r.process[numbered(of, "p")-1].task = c.task(v[0])
	default:
		panic("the search does not know the list " + kind)
	}
}

func (c *codec) readHash(r, was *redis, kind, of string, v hash) {
	switch kind {
	case "cancel", "ledger":
	case "rounds":
		for id, n := range v {
			if id != "fence" && id != "lease" {
				round, _ := strconv.Atoi(n)
				r.round[numbered(id, "W")] = uint8(round)
			}
		}
	case "entries":
		c.readRunning(r, was, v)
	case "keyed":
		e := &r.entry[c.entryOf(of, was)]
		if payload, ok := v["payload"]; ok {
			e.task = c.task(payload)
			due, _ := strconv.ParseFloat(v["due"], 64)
			e.later = due > ms
			if due < ms {
				e.score = tokenOf(due)
			}
			e.keep = v["keep"] == "1"
		}
		if id, ok := v["process"]; ok {
			e.process = uint8(numbered(id, "p"))
		}
	default:
		panic("the search does not know the hash " + kind)
	}
}

func (c *codec) readSet(r, was *redis, kind, of string, v zset) {
	for name, score := range v {
		switch kind {
		case "workers":
			r.member[numbered(name, "W")] = map[bool]lease{true: fresh, false: lapsed}[score >= ms]
		case "suspects":
			r.suspect[numbered(name, "W")] = map[float64]mark{0: failed, -1: parted}[score]
			if score > 0 {
				r.suspect[numbered(name, "W")] = suspected
			}
		case "holders":
			r.holder[numbered(name, "W")] = holder{true, tokenOf(score)}
		case "working":
			id := uint8(numbered(name, "p"))
			if workerOf(id) != numbered(of, "W") {
				panic("a worker holds what another has started")
			}
			r.process[id-1].token = tokenOf(score)
		case "schedule":
			r.entry[c.entryOf(name, was)].planned = true
		case "contents", "ages": // these follow from others, or only appear in answers
		case "canceled":
			r.cancel[slices.Index(c.names[:], name)] = tokenOf(score)
		case "stopping":
			c.readStopping(r, name)
		default:
			panic("the search does not know the set " + kind)
		}
	}
}

func (c *codec) readStopping(r *redis, member string) {
	head, rest, _ := strings.Cut(member, ":")
	token, id, _ := strings.Cut(rest, ":")
	by := 0
	if head[0] == 'k' {
		by = 1
	}
	n, _ := strconv.Atoi(token)
	r.stopping[numbered(id, "p")-1][by] = tokenOf(float64(n))
}
