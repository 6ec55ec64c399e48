package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// The encoding of rounds is on the way of every task: one round of nothing, one of a few
// ends and starts, and one of many.
func BenchmarkStepCall(b *testing.B) {
	q := keys.NewSpace("worqr").Queue("emails")
	for _, n := range []int{0, 4, 64} {
		round := &Round{Worker: "019a2b3c-0000-7000-8000-000000000001", Number: 1000, Lease: 3 * time.Second, Idle: true, Keep: 1000, Crashes: 3}
		for i := range n {
			id := fmt.Sprintf("019a2b3c-0000-7000-8000-%012d", i)
			round.Outcomes = append(round.Outcomes, &Outcome{Process: id, Token: int64(i + 300), Plain: true, Verb: Finish})
			round.Start = append(round.Start, id)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = StepCall(q, round)
			}
		})
	}
}

var sink redisconn.Call
