// Package spec is the specification: a second implementation, in Go and on a keyspace in memory, of the scripts that
// can lose a task. TestRandom sends random requests to Redis, damages its data, and compares each answer and each
// change with the specification.
//
//	go test ./integration/spec -run TestRandom -sequences=5000 -seed=7
//
// Other tests build on this package: package lane is a typed view of a queue in a store, the random test of
// integration/api checks each state with it, and integration/search makes all calls in every order, with all checks or
// without one of them.
//
// It leaves out what loses nothing: recurring tasks, ages, events, explanations, checks, and what a round costs.
package spec
