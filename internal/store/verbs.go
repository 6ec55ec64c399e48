package store

// The verbs. The header of each script has the details.
var (
	enqueue = verb(Verb{Name: "enqueue", By: asProducer, Does: "adds payloads at the back, in order, all or none, and wakes an idle worker for each",
		Keys: "waiting idle workers", Args: "wake enqueue payload…", Reply: "before", Tells: "wake enqueue"})
	enqueueOnce = verb(Verb{Name: "enqueue_once", By: asProducer, Does: "enqueues unless the nonce was already used",
		Keys: "waiting idle once workers", Args: "wake enqueue window payload…", Reply: "fresh", Tells: "wake enqueue"})
	add = verb(Verb{Name: "add", By: asWorker, Does: "adds tasks with cards, in order, all or none, and wakes an idle worker for each",
		Keys: "added idle workers waiting once", Args: "wake enqueue keyed window salt task…", Reply: "first fresh", Tells: "wake enqueue"})
	put = verb(Verb{Name: "put", By: asWorker, Does: "schedules a task with a key, or changes the waiting one",
		Keys: "shared once", Args: "shared entry payload at when keep counts enqueue card by_key window", Reply: "fresh first", Fails: "DUPLICATE", Tells: "wake enqueue end"})
	recur = verb(Verb{Name: "recur", By: asWorker, Does: "asserts a page of schedules, and plans missing occurrences",
		Keys: "shared recurring", Args: "shared period judge schedules…", Reply: "asserted ended now", Tells: "wake end"})
	removeEntry = verb(Verb{Name: "remove", By: asWorker, Does: "removes the waiting task of an entry",
		Keys: "shared", Args: "shared entry", Reply: "removed", Tells: "wake end"})

	join = verb(Verb{Name: "join", By: asWorker, Does: "makes a worker a member",
		Keys: "workers suspects rounds token", Args: "worker lease asked round", Reply: "joined", Fails: "EVICTED"})
	step = verb(Verb{Name: "step", By: asWorker, Does: "one round of a worker: ends processes, then starts others",
		Keys: "shared", Args: "shared worker round lease seen issued idle crashes solo keep head tail wake_failed done outcomes entries ends adds stopping heard ahead passed last first lists…",
		Reply: "settled odd started plain token cancels seen rank hungry again trouble recorded due last dropped passed observed now",
		Fails: "EVICTED STALE", Tells: "wake done end"})
	beat = verb(Verb{Name: "beat", By: asWorker, Does: "renews the lease of a worker, and looks for workers whose lease has expired",
		Keys: "shared recurring", Args: "shared worker lease grace judge",
		Reply: "lapsed waiting held rank canceled failed returned again due now deadline over", Fails: "EVICTED", Tells: "wake end"})
	sweep = verb(Verb{Name: "sweep", By: asWorker, Does: "looks once for workers whose lease has expired",
		Keys: "shared", Args: "shared grace", Reply: "failed returned again due", Tells: "wake end"})
	fail = verb(Verb{Name: "fail", By: asWorker, Does: "evicts a worker and returns its tasks",
		Keys: "shared", Args: "shared worker begin", Reply: "known returned handled left", Tells: "wake end"})
	leave = verb(Verb{Name: "leave", By: asWorker, Does: "ends a membership and returns what the worker holds",
		Keys: "shared", Args: "shared worker round asked", Reply: "returned left", Fails: "EVICTED", Tells: "wake end"})

	cancel = verb(Verb{Name: "cancel", By: asWorker, Does: "removes a page of a payload's waiting copies, and stops the running ones",
		Keys: "shared", Args: "shared channel payload left since after until",
		Reply: "removed token stopped finished left since after until", Tells: "wake cancel end"})
	cancelKey = verb(Verb{Name: "cancel_key", By: asWorker, Does: "removes the waiting task of a key, and stops the running one",
		Keys: "shared", Args: "shared entry", Reply: "removed token stopped finished", Tells: "wake end"})
	pause = verb(Verb{Name: "pause", By: asWorker, Does: "keeps workers from starting tasks",
		Keys: "paused"})
	resume = verb(Verb{Name: "resume", By: asWorker, Does: "ends a pause and wakes idle workers",
		Keys: "shared", Args: "shared", Tells: "wake"})
	deleteQueue = verb(Verb{Name: "delete", By: asWorker, Does: "deletes a page of the waiting tasks",
		Keys: "shared", Args: "shared delete list", Reply: "left", Tells: "wake delete end"})
	requeue = verb(Verb{Name: "requeue", By: asWorker, Does: "puts failed tasks back where they came from",
		Keys: "shared", Args: "shared head tail enqueue entry…", Reply: "requeued looked", Tells: "wake enqueue"})

	outcome = verb(Verb{Name: "outcome", By: asWorker, Does: "returns how the tasks of some entries ended, or that they haven't",
		Keys: "entries added", Args: "keyed result entry…", Reply: "ends"})

	register = verb(Verb{Name: "register", By: asWorker, Does: "writes a peer's registration",
		Keys: "worker", Args: "ttl name host pid started version queues lease stuck protocol"})
	agree = verb(Verb{Name: "agree", By: asWorker, Does: "raises the protocol version of the fleet",
		Keys: "protocol", Args: "newest oldest", Reply: "spoken"})
	enlist = verb(Verb{Name: "enlist", By: asWorker, Does: "adds a name to a set, even on a full Redis",
		Keys: "names", Args: "name"})
	unlist = verb(Verb{Name: "unlist", By: asWorker, Does: "removes a queue from the list of queues if it isn't in use",
		Keys: "registry used…", Args: "name", Reply: "removed"})
	delist = verb(Verb{Name: "delist", By: asWorker, Does: "removes a worker from the list of peers if its registration has expired",
		Keys: "peers worker", Args: "id", Reply: "removed"})
	check = verb(Verb{Name: "check", By: asWorker, Does: "examines a queue at one moment, and repairs what it can",
		Keys: "shared recurring", Args: "shared mend what worker name…", Reply: "flaws judged retries", Tells: "wake"})
	explain = verb(Verb{Name: "explain", By: asWorker, Does: "returns where the copies of a task are, and the state of the queue",
		Keys: "shared", Args: "shared entry payload most depth head tail",
		Reply: "now paused workers idle ready length added places line entries failures"})
)
