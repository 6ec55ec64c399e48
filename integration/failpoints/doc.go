// Package failpoints holds a test: every call that a peer makes, met by every
// fault at every place on its way. README.md has the table of what is promised
// then.
//
// The peer that meets the fault runs in a process of its own, so that it can be
// killed and stopped. It gets its connections from a pool whose connections hold
// a call at one place and tell; whoever holds the other end says what becomes of
// it. Nothing in the library knows of this.
package failpoints
