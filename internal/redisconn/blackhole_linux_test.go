package redisconn

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// A dial to a server that can't be reached ends after its timeout, with that error.
func TestBlackHole(t *testing.T) {
	is := redistest.Parallel(t)
	hole, _ := redistest.NewBlackHole(t)
	for _, secure := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := Server{Network: "tcp", Address: hole, Secure: secure}.Dial(ctx)
		cancel()
		var network net.Error
		is.True(errors.As(err, &network) && network.Timeout())
		is.True(Away(err))
		_, err = Server{Network: "tcp", Address: hole, Secure: secure, Timeout: 300 * time.Millisecond}.Dial(t.Context())
		is.True(errors.As(err, &network) && network.Timeout())
	}
}
