// Package failpoints tests every call that a peer makes with every fault at every place on its way.
// README.md has a table of what is promised in each case.
//
// The peer under test runs in a separate process, so that it can be killed and paused. It gets its
// connections from a pool whose connections hold a call at one place and report that; the test then
// decides what happens to the call. The library knows nothing of this.
package failpoints
