// Package failpoints tests every call of a peer with every fault at every place on its way.
// README.md has a table of the expected results.
//
// The peer under test runs in a separate process that can be killed and paused. It gets its
// connections from a pool that holds a call at one place and reports it; the test then decides what
// happens to the call. The library contains no test code for this.
package failpoints
