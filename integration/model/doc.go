// Package model compares what the scripts of internal/script do on Redis with what
// they do elsewhere.
//
// The tables of that package's tests say of each script what it answers, what is in
// Redis afterwards and what it has published. Here they run on other servers: on
// miniredis, which has commands and a Lua of its own. Where a server is not like
// Redis, a table names the difference, the smallest request that shows it, and the
// tests that fail for it. All others must pass.
//
//	go test ./integration/model
package model
