// Package spec is the specification: a second implementation of the scripts of internal/store, in Go, on
// an in-memory keyspace. Its tests compare it, and miniredis, with Redis.
//
// The tests of internal/store are tables: for each script its reply, the keys afterwards and the messages
// that it publishes. This package runs the same tables against two other servers: a miniredis whose scripts
// are the functions of this package, and a miniredis with its own Lua. If a server behaves differently from
// Redis, a list has the difference and the tests that it breaks. All other tests must pass.
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
