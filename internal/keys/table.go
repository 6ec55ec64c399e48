package keys

// A Row describes one kind of key: its name and its contents.
type Row struct {
	Name     string // its name in scripts
	Kind     string // the text between the prefix and the queue
	Part     string // what follows; "" if there is only one such key
	Fleet    bool   // it belongs to no queue
	Type     Type
	Maps     string // of a zset or hash: what it maps to what
	Fleeting bool   // it has a TTL
	Holds    string
}

// Table lists every kind of key. All code that handles keys in general uses it: parsing, the
// arguments of scripts, the rules in docs/security.md, and tests.
// Don't modify it at run time.
var Table = []Row{
	{Name: "waiting", Kind: "queues", Type: "list", Holds: "waiting payloads; the tail is the front"},
	{Name: "process", Kind: "process", Part: "process", Type: "list", Holds: "the payload of one running task"},
	{Name: "added", Kind: "added", Type: "stream", Maps: "salt and card → payload", Holds: "waiting added tasks, in order. A task's key is made of its id and salt"},
	{Name: "working", Kind: "working", Part: "worker", Type: "zset", Maps: "process → token", Holds: "what a worker runs on the queue"},
	{Name: "workers", Kind: "workers", Type: "zset", Maps: "worker → ms", Holds: "the members (workers that serve the queue), and the deadline of each"},
	{Name: "idle", Kind: "idle", Type: "zset", Maps: "worker → ms", Holds: "members with free slots and nothing to do, and when each became idle; plus 2^43 for the timekeeper"},
	{Name: "suspects", Kind: "suspects", Type: "zset", Maps: "worker → ms", Holds: "members whose deadline has passed, and when to evict them. A score of 0 (evicted) or -1 (left) means that the worker's tasks are being returned"},
	{Name: "rounds", Kind: "rounds", Type: "hash", Maps: "worker → number", Holds: "the last round of each member; as `fence`, the token when the last worker was evicted or left; as `lease`, the longest lease of the members, in ms"},
	{Name: "token", Kind: "token", Type: "string", Holds: "the last token. Starts, cancels, evictions and leaves raise it"},
	{Name: "canceled", Kind: "canceled", Type: "zset", Maps: "name → token", Holds: "the cancel log, kept while a covered task may run; a name is a digest, or `k:` and a key"},
	{Name: "cancel", Kind: "cancel", Part: "digest", Type: "hash", Fleeting: true, Holds: "how the running tasks covered by cancels of this name have ended. If a key was canceled, `k:` and the key replace the digest"},
	{Name: "holders", Kind: "holders", Type: "zset", Maps: "worker → token", Holds: "workers that hold tasks. Each has reported which of its tasks are covered by cancels up to that token"},
	{Name: "stopping", Kind: "stopping", Type: "zset", Maps: "name:token:process → 0", Holds: "running processes that a cancel covers. A name is `p` and a digest, or `k` and the digest of the entry; a token has 16 digits"},
	{Name: "schedule", Kind: "schedule", Type: "zset", Maps: "entry → ms", Holds: "the schedule: entries that wait and aren't blocked, and when each is due"},
	{Name: "keyed", Kind: "keyed", Part: "entry", Type: "hash", Holds: "one entry: its waiting and its running task"},
	{Name: "recurring", Kind: "recurring", Type: "zset", Maps: "entry → ms", Holds: "the schedules of recurring tasks, and until when each is asserted"},
	{Name: "recurrence", Kind: "recurrence", Part: "entry", Type: "hash", Holds: "a schedule: the next times, the payload, and how the last occurrence ended"},
	{Name: "contents", Kind: "contents", Type: "zset", Maps: "digest:entry → 0", Holds: "every entry with a waiting task, blocked or not, by payload"},
	{Name: "entries", Kind: "entries", Type: "hash", Maps: "process → entry", Holds: "running tasks that came from the schedule. For an added task: process → name and card, and name → process:worker"},
	{Name: "ledger", Kind: "ledger", Type: "hash", Maps: "digest → number", Holds: "the crash ledger: how many workers died holding a payload"},
	{Name: "once", Kind: "once", Part: "nonce", Type: "string", Fleeting: true, Holds: "marks an enqueue that must not be repeated; for an added task its name, for a put its entry"},
	{Name: "result", Kind: "result", Part: "entry", Type: "string", Fleeting: true, Holds: "how the task of an entry ended, if its result is kept"},
	{Name: "ages", Kind: "ages", Type: "zset", Maps: "ms → number", Holds: "how many tasks had been added to the list by a given time, recorded by heartbeats; as `drift`, a correction for that number. Used by `QueueStats.Oldest`"},
	{Name: "paused", Kind: "paused", Type: "string", Holds: "exists while the queue is paused"},
	{Name: "worker", Kind: "worker", Part: "worker", Fleet: true, Type: "hash", Fleeting: true, Holds: "name, host, pid, started, version, protocol, queues, lease (ms) of a peer, and how many of its handlers are stuck. It's for people and tools, and expires after two leases without a beat"},
	{Name: "peers", Kind: "workers", Fleet: true, Type: "set", Holds: "the ids of registered peers"},
	{Name: "protocol", Kind: "protocol", Fleet: true, Type: "string", Holds: "`N:L`: the newest protocol version of any peer, and the oldest that a peer may speak"},
	{Name: "registry", Kind: "registry", Fleet: true, Type: "set", Holds: "the names of queues that were served or enqueued to, and not deleted since"},
}

// Of returns a key of the queue or of its fleet. If there are many such keys, part is what follows;
// with part "" it returns their common beginning.
func (r *Row) Of(q Queue, part string) string {
	key := q.prefix + ":" + r.Kind
	if !r.Fleet {
		key = q.key(r.Kind)
	}
	if r.Part == "" {
		return key
	}
	return key + ":" + part
}

// Named returns the row with the name that scripts use, or nil if there is none.
func Named(name string) *Row { return byName[name] }

// A spot identifies a row by what is visible in a key.
type spot struct {
	fleet, many bool
	kind        string
}

var byName, bySpot = func() (names map[string]*Row, spots map[spot]*Row) {
	names = map[string]*Row{}
	for i := range Table {
		names[Table[i].Name] = &Table[i]
	}
	return names, spotsOf(Table)
}()

func spotsOf(table []Row) map[spot]*Row {
	spots := map[spot]*Row{}
	for i := range table {
		r := &table[i]
		spots[spot{r.Fleet, r.Part != "", r.Kind}] = r
	}
	return spots
}
