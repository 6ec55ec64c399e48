package redistest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// NewBlackHole returns an address that doesn't answer: it neither accepts nor refuses connections,
// since its backlog is full. After open is called, it accepts connections, and sends nothing on
// them.
func NewBlackHole(t testing.TB) (address string, open func()) {
	t.Helper()
	fd := Sure(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0))(t)
	file := os.NewFile(uintptr(fd), "black hole")
	defer func() { _ = file.Close() }() // the listener has a copy
	Must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	Must(t, syscall.Listen(fd, 0))
	d := newDoor(t, Sure(net.FileListener(file))(t))
	for range 10 { // until a connection gets no answer
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.Addr())
		cancel()
		if err != nil {
			return d.Addr(), sync.OnceFunc(func() {
				d.open(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			})
		}
		d.hold(c)
	}
	t.Fatal("it accepts all connections")
	return "", nil
}
