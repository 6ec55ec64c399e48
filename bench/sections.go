package main

// sections write the results of each scenario.
var sections = map[string]func(*report, scenario){
	enqueuing: func(r *report, p scenario) {
		r.say("## Enqueue\n")
		r.chart("enqueue", "tasks enqueued per second")
		r.bySystem(p, "how", perSecond, serverTime, clientTime)
		r.say("The floor is LPUSH with redigo, on one connection per caller; pipelined, 32 at a time on one")
		r.say("connection. This version of asynq has no bulk enqueue. With Add, and AddMany for batches, each")
		r.say("task has a key and a 66-byte header, including its name.\n")
	},
	processing: func(r *report, p scenario) {
		r.say("## Process\n")
		r.chart("process", "tasks processed per second")
		r.bySystem(p, "handlers", perSecond, serverTime, clientTime, commandsEach, requestsEach)
		r.say("Tasks are preloaded, and handlers do nothing. The time runs from the start of the worker until")
		r.say("Redis has stored every outcome. The floor uses bare redigo with the same layout, on two")
		r.say("connections, 100 tasks at a time, without handlers, wake-ups or recovery: in scripts, or")
		r.say("pipelined with variadic commands.\n")
	},
	setting: func(r *report, p scenario) {
		r.say("## Persistence and prefetch\n")
		r.bySystem(p, "appendonly", perSecond, serverTime, clientTime, commandsEach, requestsEach)
		r.say("As above, with 64 handlers. Redis writes its append-only file to the machine's disk. `Prefetch: -1`")
		r.say("turns prefetch off.\n")
	},
	networking: func(r *report, p scenario) {
		r.say("## Over a network\n")
		r.bySystem(p, "added round trip | handler time", column{"trip ms", "PING, ms"}, perSecond, serverTime, clientTime, commandsEach, requestsEach)
		r.say("As under Process, with 64 handlers, through a proxy that adds the delay. Measured for the first")
		r.say("%v, including the start, or until no tasks are left.\n", p.steps[0].job.Window)
	},
	crowding: func(r *report, p scenario) {
		r.say("## Next to a hot queue\n")
		r.bySystem(p, "peers of the hot queue", column{"p50 ms", "from enqueue to start, median, ms"}, column{"p99 ms", "99th percentile, ms"},
			column{"ping p50 ms", "PING, median, ms"}, column{"ping p99 ms", "99th percentile, ms"}, column{"hot tasks/s", "tasks/s of the hot queue"},
			column{"server µs", "CPU of Redis per task, µs"})
		r.say("Single tasks arrive %v apart on a queue with one idle worker. Meanwhile, peers with %d no-op handlers", quietPause, p.steps[0].job.Handlers)
		r.say("work on another queue, which never runs empty. With more peers, more tasks run at once, and")
		r.say("fewer of them are in the CPU caches.\n")
	},
	delaying: func(r *report, p scenario) {
		r.say("## From enqueue to start\n")
		r.chart("latency", "time from the enqueue call to the start of the handler")
		r.bySystem(p, "", column{"p50 ms", "median, ms"}, column{"p99 ms", "99th percentile, ms"}, column{"max ms", "maximum, ms"},
			column{"trip ms", "one round trip, ms"}, column{"trips", "median in round trips"})
		r.say("One idle worker with ten handlers. The round trip is that of a PING between two tasks.\n")
	},
	storing: func(r *report, p scenario) {
		r.say("## Memory\n")
		r.bySystem(p, "state", column{"bytes", "bytes in Redis per task"})
	},
	beside: func(r *report, p scenario) {
		r.say("## With idle peers\n")
		r.bySystem(p, "peers", column{"commands", "commands per task"}, serverTime,
			column{"commands/s", "commands/s while idle"}, column{"requests/s", "requests/s while idle"}, column{"server %", "CPU of Redis while idle, %"})
		r.say("Tasks arrive one by one, 3 ms apart. The idle peers' own cost is subtracted.\n")
	},
	idling: func(r *report, p scenario) {
		r.say("## Idle\n")
		r.bySystem(p, "queues", column{"commands/s", "commands/s"}, column{"requests/s", "requests/s"},
			column{"server %", "CPU of Redis, %"}, column{"client %", "own CPU, %"})
		r.say("One worker with ten handlers per queue and nothing to do.\n")
	},
	waiting: func(r *report, p scenario) {
		r.say("## Growth\n")
		r.chart("growth", "cost per task as queues, payloads and backlogs grow")
		r.bySystem(p, "waiting tasks", wallTime, serverTime, clientTime)
		r.say("Enqueued in batches of 100 and processed by 64 handlers, while this many other tasks wait.\n")
	},
	spreading: func(r *report, p scenario) {
		r.bySystem(p, "queues per peer", column{"start ms", "until all are served, ms"}, column{"commands/s", "commands/s while idle"},
			column{"requests/s", "requests/s while idle"}, column{"server %", "CPU of Redis while idle, %"}, wallTime, serverTime)
		r.say("Tasks enqueued by 32 callers, spread over the queues, and processed.\n")
	},
	sizing: func(r *report, p scenario) {
		r.bySystem(p, "payload, bytes", column{"enqueue wall µs", "enqueue, µs"}, column{"enqueue server µs", "of that in Redis, µs"},
			column{"process wall µs", "process, µs"}, column{"process server µs", "of that in Redis, µs"})
		r.say("Enqueued one by one, then processed by 10 handlers.\n")
	},
	returning: func(r *report, p scenario) {
		r.bySystem(p, "", column{"longest ms", "longest script, ms"}, column{"calls", "scripts over 50 µs"},
			column{"sweep s", "all returned within, s"}, column{"last s", "after the kill, s"})
		r.say("A worker that held %d tasks is killed, and another returns them. Call times are from Redis's slow log.\n", p.steps[0].job.N)
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
		r.bySystem(p, "servers", perSecond, column{"least µs", "CPU of Redis, µs, on the least busy node"},
			column{"most µs", "on the busiest"}, clientTime, commandsEach, requestsEach)
		r.say("As under Process, with 64 handlers. All servers share the first core, and the worker has the")
		r.say("other, so compare the CPU time of each node, not the rates.\n")
	},
	stalling: func(r *report, p scenario) {
		r.bySystem(p, "", column{"kept", "memberships that survive"})
		r.say("Redis is stopped for %v, with a lease of three seconds, while %d peers serve %d queues each.\n",
			p.steps[0].job.Window, p.steps[0].job.Peers, p.steps[0].job.Queues)
	},
}

var (
	perSecond    = column{"tasks/s", "tasks/s"}
	wallTime     = column{"wall µs", "µs per task"}
	serverTime   = column{"server µs", "CPU of Redis, µs"}
	clientTime   = column{"client µs", "own CPU, µs"}
	commandsEach = column{"commands", "commands"}
	requestsEach = column{"requests", "requests"}
)
