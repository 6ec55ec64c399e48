package store

// The verbs on a queue.
var (
	enqueue = verb("enqueue", asProducer)
	add     = verb("add", asWorker)
	remove  = verb("remove", asWorker)
	requeue = verb("requeue", asWorker)
	drop    = verb("delete", asWorker)
	cancel  = verb("cancel", asWorker)
	stop    = verb("stop", asWorker)
	pause   = verb("pause", asWorker)
	recur   = verb("recur", asWorker)
	result  = verb("result", asWorker)

	join      = verb("join", asWorker)
	leave     = verb("leave", asWorker)
	start     = verb("start", asWorker)
	finish    = verb("finish", asWorker)
	heartbeat = verb("heartbeat", asWorker)
	evict     = verb("evict", asWorker)
)
