// Package spec is the specification: a second implementation of the scripts of internal/store, in Go on a
// keyspace of Go values. Its tests compare it, and miniredis, with Redis.
//
// The tables in that package's tests have what each script answers, what is in Redis afterwards, and what it
// has published. Here they run on other servers: on a miniredis whose scripts this package runs, and on
// miniredis with its own Lua. If a server differs from Redis, a list names the difference and the tests that
// fail because of it. All others must pass.
//
//	go test ./integration/spec                            everything
//	go test ./integration/spec -run TestTablesOnSpec      the tables on the specification
//	go test ./integration/spec -run TestTablesOnMiniredis  the tables on miniredis
//	go test ./integration/spec -run TestRandom -sequences=5000 -seed=7
//
// The last sends the same random requests to all three, and damages their data. Other tests build
// on this package: package lane is a typed view of a queue in a store, the random test of
// integration/api compares each call of its peers with it, and integration/search makes all calls
// in every order, with all checks or without one of them.
package spec
