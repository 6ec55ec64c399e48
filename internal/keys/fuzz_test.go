package keys

import (
	"slices"
	"strings"
	"testing"
)

// named returns all names of a queue, and one of each kind of key in it.
func named(q Queue, id string) map[string]string {
	all := map[string]string{}
	for _, row := range Table {
		if !row.Fleet {
			all[row.Kind], all["failed "+row.Kind] = row.Of(q, id), row.Of(q.Failed(), id)
		}
	}
	return all
}

// FuzzNames: for any names, prefixes and ids, no two things share a key, all keys and channels of a
// queue share a slot, and a channel leads back to its queue.
func FuzzNames(f *testing.F) {
	f.Add("", "q", "q2", "01890000-0000-7000-8000-000000000000", "w")
	f.Add("a_b:c", "q", "q:q", "k:a:{q}", "")
	f.Add("worqr", "a_b", "_done", "id:with_{odd}_parts", "")
	f.Add("worqr", "a:b", "q_work:w", "w", "")
	f.Add("p:failed", "}_done", "_work", "{", "}")
	f.Add("p", "\xff", "queues:{q}", ":failed", "q}:{q")
	f.Fuzz(func(t *testing.T, prefix, a, b, id, other string) {
		if CheckPrefix(prefix) != nil || CheckName(a) != nil || CheckName(b) != nil {
			return
		}
		s := NewSpace(prefix)
		seen := map[string]string{s.Registry(): "registry", s.Workers(): "peers"}
		if id != "" {
			seen[s.Worker(id)] = "registration"
		}
		add := func(what, key string) {
			if before, ok := seen[key]; ok {
				t.Fatalf("%q is %s and %s", key, before, what)
			}
			seen[key] = what
		}
		for _, name := range slices.Compact([]string{a, b}) {
			inSlot := func(what, key string) {
				if hashed(key) != name || s.Queue(name).Failed().Slot() != Slot(name) {
					t.Errorf("%s of %q is hashed by %q", what, name, hashed(key))
				}
			}
			isRead := func(want Kind, channel string) {
				inSlot(string(want), channel)
				if queue, kind, ok := s.ParseChannel(channel); !ok || queue != name || kind != want {
					t.Errorf("the channel %q of %q is read as %q, %q, %t", channel, name, queue, kind, ok)
				}
			}
			for what, key := range named(s.Queue(name), id) {
				inSlot(what, key)
				add(name+"/"+what, key)
			}
			q := s.Queue(name)
			if other != id {
				add(name+"/other process", q.Process(other))
				add(name+"/other working", q.Working(other))
				add(name+"/other result", q.Result(other))
			}
			for _, k := range []Kind{KindWork, KindEnqueue, KindDone, KindCancel, KindDelete} {
				isRead(k, q.Channel(k))
			}
			isRead("wake", q.Wake(id))
		}
	})
}

// FuzzChannels: an arbitrary channel is rejected, or is exactly the name that its queue would give
// it.
func FuzzChannels(f *testing.F) {
	f.Add("worqr_{q}_work")
	f.Add("worqr_{q}_wake:w}_done")
	f.Add("worqr_{}_")
	f.Add("worqr_{")
	f.Fuzz(func(t *testing.T, channel string) {
		s := NewSpace("")
		queue, kind, ok := s.ParseChannel(channel)
		if ok && !strings.HasPrefix(channel, s.Queue(queue).Channel(kind)) {
			t.Errorf("%q is read as %q and %q", channel, queue, kind)
		}
	})
}
