package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/worqr/worqr/internal/keys"
)

// A scene is the data that a request finds.
type scene struct {
	keys  []string
	held  []process
	names map[string][]string // by kind of key: the suffixes of its keys, or else its contents
}

// A process is one that a worker holds.
type process struct {
	worker, id string
	token      int64
	added      bool
}

// damage draws what Redis may lose, and what people may write.
func (d *drawing) damage(s *scene) request {
	q := queue_
	head, tail := q.Around()
	some := func(kind string) string { return d.of(append(s.names[kind], "none")...) }
	id := fmt.Sprint("p", d.ids+d.IntN(2))
	if len(s.held) > 0 && d.IntN(2) == 0 {
		id = s.held[d.IntN(len(s.held))].id
	}
	worker, entry, payload := d.of("w1", "w2", "w9"), d.entry(), d.payload()
	ranks, hashes := d.of("workers", "suspects", "idle", "schedule", "contents", "canceled", "holders", "stopping"), d.of("rounds", "entries")
	lost := d.of(append(s.keys, q.Token())...)
	place := d.of(q.Waiting(), q.Workers(), q.Idle(), q.Suspects(), q.Canceled(), q.Rounds(), q.Token(), q.Schedule(), q.Contents(),
		q.Entries(), q.Ledger(), q.Holders(), q.Stopping(), q.Keyed(entry), q.Working(worker), q.Process(id), q.Cancel(digest(payload)), q.Added())
	all := [][]any{
		{"DEL", lost}, {"DEL", lost}, {"DEL", lost},
		{"ZREM", head + ranks + tail, some(ranks)},
		{"HDEL", head + hashes + tail, some(hashes)},
		{"ZREM", q.Working(worker), id},
		{"SET", q.Result(entry), d.of("garbage", "finished:5:0:=a", "failed:5:9:short", "failed:x:0:")},
		{"PERSIST", q.Result(some("result"))},
		{"HDEL", q.Keyed(some("keyed")), d.of("process", "payload", "due")},
		{"XDEL", q.Added(), d.of(append(slices.Clone(s.names["added"]), "1-1")...)},
		{"XADD", q.Added(), text(d.now) + "-9", d.of("foreign", salt, salt+"2", salt+"0"), payload},
		{"PERSIST", q.Cancel(some("cancel"))},
		{"PEXPIRE", q.Cancel(some("cancel")), 60_000},

		{"SET", place, "foreign"}, {"SET", place, "foreign"},
		{"SET", q.Token(), d.IntN(20)},
		{"LPUSH", q.Process(id), payload}, {"LPUSH", q.Process(id), payload},
		{"ZADD", q.Working(worker), 1 + d.IntN(12), id}, {"ZADD", q.Working(worker), 1 + d.IntN(12), id}, {"ZADD", q.Working(worker), 1 + d.IntN(12), id},
		{"ZADD", q.Workers(), d.now - 500, worker},
		{"ZADD", q.Suspects(), []int64{-1, 0, d.now + 700}[d.IntN(3)], worker},
		{"ZADD", q.Idle(), d.now, worker},
		{"ZADD", q.Schedule(), d.now + 700, entry},
		{"ZADD", q.Contents(), 0, digest(payload) + ":" + entry},
		{"ZADD", q.Holders(), d.IntN(20), worker},
		{"ZADD", q.Stopping(), 0, StoppingAs(d.of(digest(payload), "k:x"), int64(1+d.IntN(6)), id)},
		{"ZADD", d.IntN(6), d.IntN(6)},
		{"ZADD", q.Canceled(), 1 + d.IntN(12), d.of(digest(payload), entry)},
		{"HSET", q.Rounds(), d.of("fence", worker), d.of("1", "5", "x")},
		{"HSET", q.Entries(), id, entry},
		{"HSET", q.Keyed(d.of(entry, some("keyed"))), d.of("process", "payload", "due", "retries", "crashes", "tried", "died", "low", "high", "keep", "card", "held", "error"), d.of(id, "-1", "3")},
		{"HSET", digest(payload), d.of("w:1", "p:"+id, "e:"+entry, "x:1", "1")},
		{"HSET", "offset", d.of("5", "x")},
		{"HSET", q.Ledger(), digest(payload), d.of("1", "x")},
	}
	r := all[d.IntN(len(all))]
	return request{verb: r[0].(string), args: r[1:]}
}

var space = keys.NewSpace(prefix)

// sceneOf returns the scene in a keyspace.
func sceneOf(held *Store) scene {
	s := scene{names: map[string][]string{}}
	for _, key := range held.Keys() {
		switch v := held.Get(key).(type) {
		case map[string]float64:
			s.note(key, held.all(key))
		case map[string]string:
			var fields []ranked
			for _, name := range slices.Sorted(maps.Keys(v)) {
				fields = append(fields, ranked{name: name})
			}
			s.note(key, fields)
		case [][]string:
			var ids []ranked
			for _, item := range v {
				ids = append(ids, ranked{name: item[0]})
			}
			s.note(key, ids)
		default:
			s.note(key, nil)
		}
	}
	entries, _ := held.Get(queue_.Entries()).(map[string]string)
	for i, p := range s.held {
		s.held[i].added = strings.HasPrefix(entries[p.id], "a:")
	}
	return s
}

// note records the contents of a key.
func (s *scene) note(key string, in []ranked) {
	k, ok := space.Parse(key)
	if !ok || k.Queue == nil || k.Queue.IsFailed() {
		return
	}
	s.keys = append(s.keys, key)
	if k.Part != "" {
		s.names[k.Kind] = append(s.names[k.Kind], k.Part)
	}
	for _, r := range in {
		if k.Kind == "working" {
			s.held = append(s.held, process{worker: k.Part, id: r.name, token: int64(r.score)})
		}
		if k.Part == "" {
			s.names[k.Kind] = append(s.names[k.Kind], r.name)
		}
	}
}
