// Package simulation runs fleets of peers in one process, in virtual time.
//
// A run is a bubble of testing/synctest: real peers of the library, their handlers and producers, a
// network, and a Redis, with a clock that advances when all goroutines are blocked. Ten simulated
// hours take about a minute. The seed (New) determines everything in a run except the order in
// which goroutines run and the library's own random numbers; a record holds that order.
//
//	peers ── links ──▶ world ──▶ server ──▶ judge
//	(worqr)  (net.Conn) events   (miniredis)  what changed, and whether it may
//
// A run has two phases. In the first there are faults:
//
//   - Processes are killed, paused, stopped and cut off. Workers come and go under one id.
//   - Links break, lose everything, or delay messages until long after their sender has stopped
//     waiting. Requests arrive twice. Replies are lost.
//   - The server stalls, restarts with all its data, with the data of a second before or with
//     none, forgets its scripts, is full, read-only or loading, and its clock jumps.
//
// After each request the judge checks what it has changed:
//
//   - No task is lost, in two places, or enqueued twice. A producer whose call failed has enqueued
//     nothing.
//   - Each attempt has one owner: a member, or a worker whose tasks are being returned. An evicted
//     worker changes nothing, and no live worker that can be reached is evicted.
//   - At most one task of a key runs at a time. Tokens rise.
//   - Returned tasks go to the front, in order.
//   - A call adds all its tasks or none. They start in order, and have the key and the headers they
//     were given; none starts after it has expired. A caller that waits for the end of one gets it.
//   - Each occurrence of a schedule starts at its time or later, and never again once it has ended;
//     the next one is planned by then.
//   - A canceled task doesn't come back, and a cancel ends only when none of its tasks runs. A
//     handler begins only tasks that were started, and each once.
//
// In the second phase there are no faults. All remaining work must be done. Schedules must occur at
// each planned time, and end when no process has them. Deadlines must be kept (wake, due, cancel,
// recovery). When the fleet has left, none of its keys may be in Redis.
//
// # Differences from a real Redis, network and processes
//
// miniredis provides the commands and the data. Scripts run in one persistent Lua state, with the
// error replies of Redis 7, including the rules for scripts while memory is full or the server is
// read-only. A command that server.go doesn't list is refused, so these rules cover all
// that are used.
// Differences that matter:
//
//   - miniredis stores a key's remaining time, and Redis the time at which it expires. When
//     the clock is set back, keys with a TTL live longer in Redis: registrations, nonces and records
//     of ended cancels.
//   - A script that fails halfway ends with the same reply as in Redis, but
//     without the position in the script.
//   - Scripts take no time. Their cost is measured elsewhere.
//
// A paused process reads nothing, and neither begins nor ends anything. Its timers fire, but what
// they make it send is sent after the pause. A killed process keeps running, unseen, until its
// goroutines have ended, because a bubble waits for them. Package integration/engines uses real signals.
//
// If a worker is cut off, paused, or on a link that was broken, evicting it is not a violation for
// three leases. Nor is it after a restart that has lost writes, since leases have then expired
// sooner. Latencies are at most a 150th of the lease: an outage of Redis of about a heartbeat leaves
// peers a third of the lease to come back, which takes several round trips.
package simulation
