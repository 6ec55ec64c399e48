// Package failpoints injects every fault at every place of the calls that can lose a task or do one twice.
//
// The peer that meets the fault, the victim, runs in a separate process that can be killed and paused. It gets
// its connections from a pool that holds one call at one place and reports it (place_test.go has the places and
// the faults); the test then decides what happens to the call. The library contains no test code for this. A
// second peer serves the same queue: it evicts the victim if necessary, and handles the remaining tasks at the
// end. Then:
//
//   - Every task was finished as often as it was accepted, and every caller got what scenario.promised returns.
//   - Returned tasks are at the front, in the order of their starts. A crash is counted for each task that was
//     held when its worker died, and for no other.
//   - If the victim was evicted, all ends of its tasks are refused, and it then handles another task under a new
//     id. Otherwise it keeps its id.
//   - When all peers have left, the only keys are those that are kept on purpose.
//
// There are two exceptions. A late copy of join is refused once any worker has left or was evicted; until then, it
// adds a member that has no tasks, until its lease expires. If a producer's request arrives twice, it adds its
// tasks twice, unless it has a nonce or is a put whose own task still waits under the key.
//
// TestHandlers injects the same faults into handlers. A failed test prints the command that repeats it.
package failpoints
