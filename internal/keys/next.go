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
func (s Space) NoneBeside(key string) string { return s.Queue(key).Once("") }
