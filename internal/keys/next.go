package keys

// Next has the keys of the next protocol (docs/next/protocol.md) that today's doesn't have, or has in
// another form.
type Next struct{ Queue }

// NextOf returns the keys of the next protocol.
func NextOf(q Queue) Next { return Next{q} }

func (q Next) Tasks() string                   { return q.key("tasks") }
func (q Next) Ready() string                   { return q.key("ready") }
func (q Next) Risky() string                   { return q.key("risky") }
func (q Next) Aside() string                   { return q.key("aside") }
func (q Next) Behind() string                  { return q.key("next") }
func (q Next) Runs() string                    { return q.key("runs") }
func (q Next) Copies() string                  { return q.key("copies") }
func (q Next) Leaving() string                 { return q.key("leaving") }
func (q Next) State() string                   { return q.key("state") }
func (q Next) Crashes() string                 { return q.key("crashes") }
func (q Next) Schedules() string               { return q.key("recurrence") }
func (q Next) CanceledBy(digest string) string { return q.key("canceled") + ":" + digest }

// None returns a key of the queue that never exists: that of the empty nonce. Every script declares
// it. While a slot moves to another node, it makes Redis reject a script before it runs.
func (q Next) None() string { return q.Once("") }

// Ends returns the prefix and the end of the queue's keys, for scripts that write into a second queue.
func (q Next) Ends() (prefix, tail string) { return q.prefix, "{" + q.name + "}" }

// NoneBeside returns a key that never exists, in the slot of a key that belongs to no queue.
func NoneBeside(s Space, key string) string { return s.Queue(key).Once("") }

// NextTable lists every kind of key of the next protocol, as Table does of today's. Don't modify it at run time.
var NextTable = []Row{
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
	{Kind: "state", Type: "hash", Holds: "token, place, taken, fence, lease, look, claimed, paused"},
	{Kind: "crashes", Type: "hash", Maps: "digest → number", Holds: "how many workers died holding a raw task"},
	{Kind: "canceled", Part: "digest", Type: "string", Fleeting: true, Holds: "the last token when the payload was canceled"},
	{Kind: "ages", Type: "zset", Maps: "ms → number", Holds: "how many raw tasks had been added by then"},
	{Kind: "recurring", Type: "zset", Maps: "name → ms", Holds: "schedules, and until when each is asserted"},
	{Kind: "recurrence", Type: "hash", Holds: "schedules: their times, and what has passed"},
	{Kind: "once", Part: "nonce", Type: "string", Fleeting: true, Holds: "the name that a call with this nonce has added"},
	{Kind: "result", Part: "name", Type: "string", Fleeting: true, Holds: "how a task ended"},
	{Kind: "worker", Part: "worker", Fleet: true, Type: "hash", Fleeting: true, Holds: "the registration of a peer"},
	{Kind: "workers", Fleet: true, Type: "set", Holds: "the ids of registered peers"},
	{Kind: "protocol", Fleet: true, Type: "string", Holds: "the newest version of any peer, and the oldest that a peer may speak"},
	{Kind: "registry", Fleet: true, Type: "set", Holds: "the names of queues"},
}

var nextSpots = spotsOf(NextTable)

// ParseNext is Parse for the keys of the next protocol.
func (s Space) ParseNext(key string) (k Key, ok bool) { return s.parse(key, nextSpots) }

// OthersNext is Others for the keys of the next protocol.
func (s Space) OthersNext(key string) bool { return s.others(key, nextSpots) }
