// Package simulation runs fleets of peers in one process, in a time of their own.
//
// A run is a bubble of testing/synctest: peers of the library as it is, their
// handlers and producers, a network, and a Redis, with a clock that goes on when
// nobody has anything left to do. So ten hours take a minute or so. All of a run
// follows from a seed (New) but the order in which goroutines run, and what the
// library draws itself; that order is what a record holds (Replay).
//
//	peers ── links ──▶ world ──▶ server ──▶ judge
//	(worqr)  (net.Conn) events   (miniredis)  what changed, and whether it may
//
// A run has two phases. In the first there are faults: processes are killed, some of
// them between the pages, the commit and the hauls of a batch that they enqueue;
// paused, stopped and cut off; workers come and go under one id; links break, lead nowhere, hold up what they carry
// until long after its sender has given up; requests come twice; replies are lost;
// the server stands still, restarts with all it knew, with what it knew a second
// before or with nothing, forgets its scripts, is full, read-only or loading, and
// its clock jumps. After each request the judge looks at what that has changed:
// no task is lost, or in two places, or enqueued twice; each process has one owner,
// which is a member or is being returned; who was failed changes nothing; nobody is
// failed who lives and can be heard; a key runs once at a time; locks are where
// their payload is; tokens rise; what goes back goes to the front, in order; all of a
// batch is accepted or none, it keeps its order, and what is enqueued later is behind it; what
// was canceled does not come back, and a cancel is over only when nothing of it
// runs; a handler begins only what was started, once; a producer that is told of a
// failure has enqueued nothing. In the second phase there are no faults. All that
// is left must be done, deadlines must be kept (wake, due, cancel, recovery), and
// when the fleet has left, nothing of it may be in Redis.
//
// # Differences to a Redis, a network and processes
//
// Commands and data are those of miniredis. Scripts run in one Lua state that is
// kept, with the error replies of Redis 7, including the rules for scripts when
// memory is full or the server read-only; a command that is not in the table is
// refused, so that none is used here untested. Differences that matter:
//
//   - miniredis counts the time that a key has left, and Redis a time of its
//     clock. When the clock is set back, keys with a TTL live longer in Redis. That
//     is so for registrations, nonces and records of cancels that are over.
//   - A script that fails half-way ends with the same reply as in Redis, but
//     without the position in the script.
//   - Scripts take no time. What is said of their cost is measured elsewhere.
//
// A paused process reads nothing, and neither begins nor ends anything; its timers
// fire, and what they have it send is sent after the pause. A killed one goes on
// where nobody can see it until its goroutines have ended, which a bubble waits
// for. Real signals are the part of the chaos tests.
//
// For who is cut off, paused, or on a link that was broken, being failed is no
// violation, for three leases; nor is it after a restart that has lost writes,
// since leases have then lapsed sooner. Latencies are at most a 150th of the lease,
// as an outage of Redis that is about as long as a beat leaves peers a third of the
// lease to come back, which takes some round trips.
package simulation
