package redistest

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A BlackHole is an address at which nothing answers, neither by accepting connections nor by refusing
// them: its backlog is full.
type BlackHole struct {
	listener net.Listener
	fill     []net.Conn
	open     sync.Once
	wg       sync.WaitGroup
}

// NewBlackHole returns one.
func NewBlackHole(t testing.TB) *BlackHole {
	t.Helper()
	fd := Sure(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0))(t)
	file := os.NewFile(uintptr(fd), "black hole")
	defer func() { _ = file.Close() }() // the listener has a copy
	for _, err := range []error{syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &BlackHole{listener: Sure(net.FileListener(file))(t)}
	t.Cleanup(func() {
		_ = h.listener.Close()
		for _, c := range h.fill {
			_ = c.Close()
		}
		h.wg.Wait()
	})
	for range 10 { // until one gets no answer
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.Addr())
		cancel()
		if err != nil {
			return h
		}
		h.fill = append(h.fill, c)
	}
	t.Fatal("it takes all connections")
	return nil
}

// Addr is its address.
func (h *BlackHole) Addr() string { return h.listener.Addr().String() }

// Open has it accept connections from now on, and say nothing on them.
func (h *BlackHole) Open() {
	h.open.Do(func() {
		h.wg.Go(func() {
			var all []net.Conn
			for {
				c, err := h.listener.Accept()
				if err != nil {
					break
				}
				all = append(all, c)
			}
			for _, c := range all {
				_ = c.Close()
			}
		})
	})
}
