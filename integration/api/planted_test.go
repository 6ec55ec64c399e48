package api

import (
	"fmt"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// recordOf returns what Redis holds of a named task, as another program would write it.
func recordOf(due int64, payload string) string { return fmt.Sprintf("0:%d:0:0:0:0:%s", due, payload) }

// failedRecord returns what the failed queue holds of a task that is to go back to a name.
func failedRecord(back, payload string) string {
	metadata := fmt.Sprintf("failed:%d:w:w.1.1.1:0:0:%d:2:%sno", int64(1e12), len(back), back)
	return fmt.Sprintf("0:0:0:0:0:%d:%s%s", len(metadata), metadata, payload)
}

// namedPayloads returns the payloads of the waiting tasks that aren't on the list.
func namedPayloads(t testing.TB, q *worqr.Queue) (all []string) {
	t.Helper()
	for _, n := range peertest.Named(t, q) {
		all = append(all, string(n.Payload))
	}
	return all
}
