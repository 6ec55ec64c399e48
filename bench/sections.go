package main

// sections write the results of each scenario.
var sections = map[string]func(*report, scenario){
	enqueuing: func(r *report, p scenario) {
		r.say("## Enqueue\n")
		r.bySystem(p, "how", perSecond, serverTime, clientTime)
		r.say("The floor is LPUSH with redigo, on one connection per caller. This version of asynq has no bulk enqueue. *Behind*")
		r.say("means that so many tasks wait already. With Add, each task has a key and a 66-byte header, including its name.\n")
	},
	processing: func(r *report, p scenario) {
		r.say("## Process\n")
		r.bySystem(p, "handlers", perSecond, serverTime, clientTime, commandsEach, requestsEach)
		r.say("Tasks are preloaded, and handlers do nothing. The time runs from the start of the worker until")
		r.say("Redis has stored every outcome. The floor uses bare redigo with the same layout, on two")
		r.say("connections, 100 tasks at a time in scripts, without handlers, wake-ups or recovery.\n")
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
	delaying: func(r *report, p scenario) {
		r.say("## From enqueue to start\n")
		r.bySystem(p, "", column{"p50 ms", "median, ms"}, column{"p99 ms", "99th percentile, ms"}, column{"max ms", "maximum, ms"},
			column{"trip ms", "one round trip, ms"}, column{"trips", "median in round trips"})
		r.say("One idle worker with ten handlers. The round trip is that of a PING between two tasks.\n")
	},
	storing: func(r *report, p scenario) {
		r.say("## Memory\n")
		r.bySystem(p, "", column{"bytes", "bytes in Redis per waiting task"})
	},
	beside: func(r *report, p scenario) {
		r.say("## With idle peers\n")
		r.bySystem(p, "peers", column{"commands", "commands per task"}, serverTime,
			column{"commands/s", "commands/s while idle"}, column{"requests/s", "requests/s while idle"}, column{"server %", "CPU of Redis while idle, %"})
		r.say("Tasks arrive one by one, 3 ms apart. The idle peers' own cost is subtracted.\n")
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
	stalling: func(r *report, p scenario) {
		r.say("## Large fleets\n")
		r.bySystem(p, "", column{"server %", "CPU of Redis while idle, %"}, column{"commands/s", "commands/s while idle"},
			column{"early", "evicted at the start"}, column{"kept", "memberships that survive"})
		r.say("All start at once. Then Redis is stopped for %v, with a lease of three seconds, while %d peers serve %d queues each.\n",
			p.steps[0].job.Window, p.steps[0].job.Peers, p.steps[0].job.Queues)
	},
	recording: func(r *report, p scenario) {
		r.say("## History\n")
		stored, idle := p.steps[0].job, p.steps[1].job
		r.bySystem(scenario{steps: p.steps[:1]}, "", column{"MB", "MB in Redis"}, column{"bytes", "bytes per queue"}, column{"keys", "keys per queue"},
			column{"minutes kB", "a busy queue's minutes, kB"}, column{"day kB", "its hours, kB per day"},
			column{"script µs", "script, µs"}, serverTime, column{"share %", "share of Redis with ten peers, %"})
		r.say("%d queues after %d days: on average, a fifth of them start 1,000 tasks a minute, a fifth 50, and the others one every", stored.Queues, stored.N)
		r.say("half an hour. Each of the ten peers calls once a minute for each queue.\n")
		r.bySystem(scenario{steps: p.steps[1:]}, "", column{"commands/s", "commands/s while idle"}, column{"server %", "CPU of Redis while idle, %"})
		r.say("%d idle peers serve %d queues each, for %v.\n", idle.Peers, idle.Queues, idle.Window)
	},
}

var (
	perSecond    = column{"tasks/s", "tasks/s"}
	serverTime   = column{"server µs", "CPU of Redis, µs"}
	clientTime   = column{"client µs", "own CPU, µs"}
	commandsEach = column{"commands", "commands"}
	requestsEach = column{"requests", "requests"}
)
