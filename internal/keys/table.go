package keys

// A Row describes one kind of key: its name and its contents.
type Row struct {
	Kind     string // the text between the prefix and the queue
	Part     string // what follows; "" if there is only one such key
	Fleet    bool   // it belongs to no queue
	Type     Type
	Maps     string // of a zset or hash: what it maps to what
	Fleeting bool   // it has a TTL
	Holds    string
}

// Table lists every kind of key, for parsing and for tests: of the names in lib_keys.lua, of docs/protocol.md, and of the
// rules in docs/security.md.
// Don't modify it at run time.
var Table = []Row{
	{Kind: "queues", Type: "list", Holds: "raw tasks; the tail is the front"},
	{Kind: "tasks", Type: "hash", Maps: "name → record", Holds: "named tasks"},
	{Kind: "ready", Type: "zset", Maps: "name → place", Holds: "those that may start"},
	{Kind: "schedule", Type: "zset", Maps: "name → ms", Holds: "those that wait for a time"},
	{Kind: "risky", Type: "zset", Maps: "name → place", Holds: "those that run one at a time"},
	{Kind: "aside", Type: "zset", Maps: "name → place", Holds: "in a failed queue: those that failed there, too"},
	{Kind: "next", Type: "hash", Maps: "name → task", Holds: "what waits behind the running one"},
	{Kind: "runs", Type: "hash", Maps: "name → run", Holds: "attempt and counts, while it runs or after a failure"},
	{Kind: "copies", Type: "zset", Maps: "name → 0", Holds: "the names of raw tasks outside the list"},
	{Kind: "process", Part: "attempt", Type: "list", Holds: "the payload or the name of what runs"},
	{Kind: "working", Part: "worker", Type: "zset", Maps: "attempt → token", Holds: "what a worker runs; negative: it must stop"},
	{Kind: "workers", Type: "zset", Maps: "worker → ms", Holds: "members, and when their leases expire"},
	{Kind: "suspects", Type: "zset", Maps: "worker → ms", Holds: "members with an expired lease, and when they may be fenced"},
	{Kind: "leaving", Type: "zset", Maps: "worker → 0 or 1", Holds: "workers whose tasks are being returned; 1: evicted"},
	{Kind: "idle", Type: "zset", Maps: "worker → ms", Holds: "members with free slots, since when"},
	{Kind: "rounds", Type: "hash", Maps: "worker → number", Holds: "the last round of each member"},
	{Kind: "state", Type: "hash", Holds: "token, place, taken (raw tasks started or canceled, less those that came back), added (named tasks), fence, lease (the longest), look (when one worker looks for dead ones), claimed (the next time, by which an idle worker starts), paused, seen"},
	{Kind: "crashes", Type: "hash", Maps: "digest → number", Holds: "how many workers died holding a raw task"},
	{Kind: "canceled", Part: "digest", Type: "string", Fleeting: true, Holds: "the last token when the payload was canceled"},
	{Kind: "ages", Type: "zset", Maps: "ms → number", Holds: "how many raw tasks had been added by then"},
	{Kind: "recurring", Type: "zset", Maps: "name → ms", Holds: "schedules, and until when each is asserted"},
	{Kind: "recurrence", Type: "hash", Holds: "schedules: their times, and what has passed"},
	{Kind: "once", Part: "nonce", Type: "string", Fleeting: true, Holds: "the name that a call with this nonce has added"},
	{Kind: "result", Part: "name", Type: "string", Fleeting: true, Holds: "how a task ended"},
	{Kind: "history", Part: "time", Type: "hash", Maps: "number → counts", Fleeting: true, Holds: "what happened in the minutes of an hour, or in the hours of a day"},
	{Kind: "worker", Part: "worker", Fleet: true, Type: "hash", Fleeting: true, Holds: "the registration of a peer"},
	{Kind: "workers", Fleet: true, Type: "set", Holds: "the ids of registered peers"},
	{Kind: "protocol", Fleet: true, Type: "string", Holds: "the newest version of any peer, and the oldest that a peer may speak"},
	{Kind: "notes", Fleet: true, Type: "hash", Maps: "note → JSON", Fleeting: true, Holds: "silenced findings, and what has happened within a day"},
	{Kind: "versions", Fleet: true, Type: "zset", Maps: "version → ms", Holds: "versions of the service, and when a peer first had each"},
	{Kind: "registry", Fleet: true, Type: "set", Holds: "the names of queues"},
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

// A spot identifies a row by what is visible in a key.
type spot struct {
	fleet, many bool
	kind        string
}

var bySpot = func() map[spot]*Row {
	spots := map[spot]*Row{}
	for i := range Table {
		r := &Table[i]
		spots[spot{r.Fleet, r.Part != "", r.Kind}] = r
	}
	return spots
}()
