// Package api tests the library's guarantees, by subject, through its API and on a real Redis. Most
// verbs also have tests next to their sources. Those of Enqueue, Cancel and CancelKey are here.
package api

import (
	"os"
	"testing"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/peertest"
)

func TestMain(m *testing.M) {
	if config, given := child.Given[childConfig](); given {
		serve(config)
		return
	}
	os.Exit(peertest.Main(m))
}
