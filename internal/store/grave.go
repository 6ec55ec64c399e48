package store

// A Grave is a task in a failed queue.
type Grave struct {
	Entry   string // in the failed queue
	Payload []byte
	Kind    Kind
	Reason  string
	Retries int
	Crashes int
	Worker  string // that had it last
	At      int64  // ms of Redis time
	From    string // the entry of its key; "" for the list
	Due     int64  // ms of Redis time when it was to run; 0 if that isn't known
	Card    string // "" if it has none
}

// grave decodes what is known of a failed task.
func (d *decoder) grave() Grave {
	return Grave{d.string(), d.bytes(), Kind(d.string()), d.string(), int(d.number()), int(d.number()), d.string(), d.number(), d.string(), d.number(), ""}
}
