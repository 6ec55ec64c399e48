// Package engines runs real peer processes on Sentinel and on a Redis Cluster while masters change,
// slots move and peers are killed and stopped. It checks their reports against a record outside Redis: nothing
// is lost, no task has two owners, and all peers work again soon.
//
//	go test ./integration/engines -v -engines.rounds 50
package engines
