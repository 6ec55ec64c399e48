package redistest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// An address that leads nowhere stays so: it refuses connections, and no server can have it.
func TestNowhere(t *testing.T) {
	t.Parallel()
	address := redistest.Nowhere(t)
	if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	if _, err := net.Listen("tcp", address); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
}
