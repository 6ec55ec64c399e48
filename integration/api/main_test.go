// Package api tests what the library promises, by subject, through its API and on a real
// Redis. The verbs' own tests are beside their sources.
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
