// Package api tests the library's guarantees, by subject, through its API and on a real Redis. Some
// behavior is tested in the root instead, such as draining; docs/architecture.md says where.
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
