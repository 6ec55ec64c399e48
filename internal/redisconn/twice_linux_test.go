package redisconn

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// A server that can't be reached at first is reached by the same dial once it's back: the dial
// tries to connect a second time. Each try has half of the time from when the name is resolved.
func TestSecondTry(t *testing.T) {
	is := redistest.Parallel(t)
	hole, open := redistest.NewBlackHole(t)
	dialer := &net.Dialer{}
	tries := 0
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	conn, err := twice(ctx, time.Hour, func(ctx context.Context, begin func()) (net.Conn, error) {
		begin()
		if tries++; tries == 2 {
			open()
		}
		return dialer.DialContext(ctx, "tcp", hole)
	})
	is.NoErr(err)
	_ = conn.Close() // it was only a check
	is.Equal(tries, 2)

	for name, fails := range map[string]func() (net.Conn, error){ // fails immediately
		"refused": func() (net.Conn, error) { return nil, errors.New("refused") },
		"there":   func() (net.Conn, error) { return nil, nil },
	} {
		tries = 0
		_, _ = twice(t.Context(), time.Hour, func(_ context.Context, begin func()) (net.Conn, error) {
			begin()
			tries++
			return fails()
		})
		if tries != 1 {
			t.Error(name, tries, "tries")
		}
	}
}

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
