package main

// sections write the results of each scenario.
var sections = map[string]func(*report, scenario){
	enqueuing: func(r *report, p scenario) {
		r.say("## Enqueue\n")
		r.chart("enqueue", "tasks enqueued in a second")
		r.bySystem(p, "how", perSecond, serverTime, clientTime)
		r.say("The floor is LPUSH by redigo, on a connection for each caller; pipelined, 32 at a")
		r.say("time on one connection. This version of asynq has no call for many tasks.")
		r.say("With Add, and AddMany in batches, each task has a key and a header of 66 bytes, its name included.\n")
	},
	processing: func(r *report, p scenario) {
		r.say("## Process\n")
		r.chart("process", "tasks processed in a second")
		r.bySystem(p, "handlers", perSecond, serverTime, clientTime, commandsEach, requestsEach)
		r.say("Preloaded tasks, handlers that do nothing; from the start of the worker until all")
		r.say("have been handled and have ended in Redis. The floor is the same layout by bare")
		r.say("redigo on two connections, 100 tasks at a time, without handlers, wake-ups or")
		r.say("recovery: in scripts, or pipelined with variadic commands.\n")
	},
	setting: func(r *report, p scenario) {
		r.say("## Durable, and one by one\n")
		r.bySystem(p, "appendonly", perSecond, serverTime, clientTime, commandsEach, requestsEach)
		r.say("As above, with 64 handlers, on a Redis that writes its log to the machine's disk; and with")
		r.say("workers that don't prefetch.\n")
	},
	networking: func(r *report, p scenario) {
		r.say("## Over a network\n")
		r.bySystem(p, "round trip added | a handler takes", column{"trip ms", "a PING, ms"}, perSecond, serverTime, clientTime, commandsEach, requestsEach)
		r.say("As in process, with 64 handlers, through a proxy that adds the delay; measured for the first")
		r.say("%v, including the start, or until no task is left.\n", p.steps[0].job.Window)
	},
	crowding: func(r *report, p scenario) {
		r.say("## Beside a hot queue\n")
		r.bySystem(p, "peers of the hot queue", column{"p50 ms", "from enqueue to start, median, ms"}, column{"p99 ms", "99th percentile, ms"},
			column{"ping p50 ms", "a PING, median, ms"}, column{"ping p99 ms", "99th percentile, ms"}, column{"hot tasks/s", "tasks/s of the hot queue"},
			column{"server µs", "CPU of Redis per task, µs"})
		r.say("Single tasks, %v apart, on a queue that one idle worker serves, while peers with %d handlers that do", quietPause, p.steps[0].job.Handlers)
		r.say("nothing work on another queue, which never runs empty. The more peers, the more tasks run at")
		r.say("a time, and the fewer of them are in Redis's caches.\n")
	},
	delaying: func(r *report, p scenario) {
		r.say("## From enqueue to start\n")
		r.chart("latency", "time from the call of enqueue to the start of the handler")
		r.bySystem(p, "", column{"p50 ms", "median, ms"}, column{"p99 ms", "99th percentile, ms"}, column{"max ms", "maximum, ms"},
			column{"trip ms", "one round trip, ms"}, column{"trips", "median in round trips"})
		r.say("One idle worker with ten handlers; the round trip is of PING, between any two tasks.\n")
	},
	storing: func(r *report, p scenario) {
		r.say("## Memory\n")
		r.bySystem(p, "tasks that are", column{"bytes", "bytes of Redis for each"})
	},
	beside: func(r *report, p scenario) {
		r.say("## Beside idle peers\n")
		r.bySystem(p, "peers", column{"commands", "commands for a task"}, serverTime,
			column{"commands/s", "commands/s while idle"}, column{"requests/s", "requests/s while idle"}, column{"server %", "CPU of Redis while idle, %"})
		r.say("Tasks come one by one, 3 ms apart. The cost of idle peers is subtracted.\n")
	},
	idling: func(r *report, p scenario) {
		r.say("## Idle\n")
		r.bySystem(p, "queues", column{"commands/s", "commands/s"}, column{"requests/s", "requests/s"},
			column{"server %", "CPU of Redis, %"}, column{"client %", "own CPU, %"})
		r.say("One worker with ten handlers on each queue, with nothing to do.\n")
	},
	waiting: func(r *report, p scenario) {
		r.say("## Growth\n")
		r.chart("growth", "cost of a task as queues, payloads and backlogs grow")
		r.bySystem(p, "tasks that wait", wallTime, serverTime, clientTime)
		r.say("Enqueued in batches of 100 and processed by 64 handlers, while as many others keep waiting.\n")
	},
	spreading: func(r *report, p scenario) {
		r.bySystem(p, "queues of one peer", column{"start ms", "until all are served, ms"}, column{"commands/s", "commands/s while idle"},
			column{"requests/s", "requests/s while idle"}, column{"server %", "CPU of Redis while idle, %"}, wallTime, serverTime)
		r.say("Tasks enqueued by 32 callers, spread over the queues, and processed.\n")
	},
	sizing: func(r *report, p scenario) {
		r.bySystem(p, "bytes of payload", column{"enqueue wall µs", "enqueue, µs"}, column{"enqueue server µs", "of that in Redis, µs"},
			column{"process wall µs", "process, µs"}, column{"process server µs", "of that in Redis, µs"})
		r.say("Enqueued one by one, then processed by 10 handlers.\n")
	},
	returning: func(r *report, p scenario) {
		r.bySystem(p, "", column{"longest ms", "longest script, ms"}, column{"calls", "scripts over 50 µs"},
			column{"sweep s", "all returned within, s"}, column{"last s", "after the kill, s"})
		r.say("A worker that held %d tasks is killed, and another returns them. The times of calls are those that Redis reports.\n", p.steps[0].job.N)
	},
	recovering: func(r *report, p scenario) {
		r.say("## Recovery\n")
		r.bySystem(p, "", column{"first s", "first task starts after, s"}, column{"last s", "last, s"})
		r.say("A worker that holds ten tasks is killed with SIGKILL while another is idle, both with the defaults.\n")
	},
	dying: func(r *report, p scenario) {
		r.bySystem(p, "", column{"first s", "first task starts after, s"}, column{"last s", "last, s"})
		r.say("%d workers in %d processes are killed at once. Each holds a task; one other worker is idle.\n", p.steps[0].job.Peers, crews)
	},
	clustering: func(r *report, p scenario) {
		r.say("## Spread over a cluster\n")
		r.chart("spread", "CPU of Redis per task, on each node")
		r.bySystem(p, "servers", perSecond, column{"least µs", "CPU of Redis, µs, on the least busy node"},
			column{"most µs", "on the busiest"}, clientTime, commandsEach, requestsEach)
		r.say("As in process, with 64 handlers. All servers share the first core and the worker has the")
		r.say("other, so compare the CPU time of each node, not the rates.\n")
	},
	resting: func(r *report, p scenario) {
		r.bySystem(p, "parts | peers", column{"commands/s", "commands/s"}, column{"requests/s", "requests/s"},
			column{"server/s", "CPU of Redis, µs/s"}, column{"each µs", "of that, for each part of each peer"})
		r.say("The same on three masters, without tasks, minus what idle masters use anyway.\n")
		r.forecast()
	},
	stalling: func(r *report, p scenario) {
		r.bySystem(p, "", column{"kept", "memberships that survive the stall"})
		r.say("Redis is stopped for %v, with a lease of three seconds, while %d peers serve %d queues each.\n",
			p.steps[0].job.Window, p.steps[0].job.Peers, p.steps[0].job.Queues)
	},
}

var (
	perSecond    = column{"tasks/s", "tasks/s"}
	wallTime     = column{"wall µs", "µs for a task"}
	serverTime   = column{"server µs", "CPU of Redis, µs"}
	clientTime   = column{"client µs", "own CPU, µs"}
	commandsEach = column{"commands", "commands"}
	requestsEach = column{"requests", "requests"}
)
