package worqrtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A paused peer that gets many messages doesn't block the others.
func TestPausedSubscriber(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) {
		watcher, other := redis.Peer(nil), redis.Peer(nil)
		seen := make(chan inspect.EventKind, 1000)
		go func() {
			for e, err := range watcher.Events(t.Context()) {
				if err == nil {
					seen <- e.Kind
				}
			}
			close(seen)
		}()
		<-seen // it's subscribed
		watcher.Pause()
		began := time.Now()
		for i := range 20 {
			q := other.Queue("q")
			must(t, q.Pause(t.Context()))
			add(t, q, worqr.TaskSpec{Key: fmt.Sprint(i), Payload: []byte("x")})
			must(t, q.Resume(t.Context()))
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the other peer's calls took %v of virtual time", took)
		}
		watcher.Resume()
	})
}

// A peer that can't leave in time doesn't fail the test, but one with a stuck handler does.
func TestServe(t *testing.T) {
	t.Parallel()
	for _, stuck := range []bool{false, true} {
		Virtual(t, func(t *testing.T, redis *Redis) {
			f := &failing{TB: t}
			redis.t = f
			peer := redis.Peer(&worqr.Options{Drain: -1})
			q, started, end := peer.Queue("q"), make(chan bool), make(chan bool)
			q.Handle(func(context.Context, *worqr.Task) error {
				started <- true
				<-end
				return nil
			}, &worqr.HandleOptions{Grace: time.Second})
			stop := peer.Serve()
			if stuck {
				must(t, q.Enqueue(t.Context(), []byte("x")))
				<-started
			} else {
				for peer.Ready() != nil {
					time.Sleep(time.Millisecond)
				}
			}
			peer.Pause()
			stop()
			close(end)
			if failed := f.text != ""; failed != stuck {
				t.Errorf("stuck %v: it fails with %q", stuck, f.text)
			}
		})
	}
}

// A peer tries to leave for as long as Run may take, and no longer, whatever its lease.
func TestLeaveIsRepeated(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Hour} {
		for _, away := range []time.Duration{3500 * time.Millisecond, time.Minute} {
			Virtual(t, func(t *testing.T, redis *Redis) {
				peer := redis.Peer(&worqr.Options{Lease: lease})
				peer.Queue("q").Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
				ctx, end := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				go func() { ran <- peer.Run(ctx) }()
				for peer.Ready() != nil {
					time.Sleep(time.Millisecond)
				}
				peer.Pause()
				end()
				ended := time.Now()
				time.AfterFunc(away, peer.Resume)
				err := <-ran
				if took := time.Since(ended); (err == nil) != (away < 4*time.Second) || took > 5*time.Second {
					t.Errorf("with a lease of %v, and Redis away for %v: %v after %v", lease, away, err, took)
				}
				peer.Resume()
			})
		}
	}
}

// A connection keeps what is sent until it's read, and its deadlines work like those of a socket.
func TestPipe(t *testing.T) {
	t.Parallel()
	client, server := newPair()
	text := make([]byte, 1<<20)
	if n, err := client.Write(text); n != len(text) || err != nil { // nobody reads yet
		t.Errorf("Write: %d, %v", n, err)
	}
	if n, err := io.ReadFull(server, text); n != len(text) || err != nil {
		t.Errorf("Read: %d, %v", n, err)
	}
	must(t, client.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	if _, err := client.Read(text); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read at the deadline: %v", err)
	}
	must(t, client.SetReadDeadline(time.Time{}))
	read := make(chan error)
	go func() {
		_, err := client.Read(text)
		read <- err
	}()
	_, err := client.Write([]byte("last"))
	must(t, err)
	must(t, client.Close())
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read of the closed end: %v", err)
	}
	if all, err := io.ReadAll(server); string(all) != "last" || err != nil {
		t.Errorf("Read of the other end: %q, %v", all, err)
	}
	if _, err := server.Write(text); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Write to a closed end: %v", err)
	}
}

// A deadline that passes after a reader has looked at it, and before it waits, wakes it.
func TestPipeDeadline(t *testing.T) {
	t.Parallel()
	p := newPipe()
	p.mu.Lock() // as the reader
	defer p.mu.Unlock()
	p.setDeadlineLocked(time.Now().Add(time.Millisecond))
	time.Sleep(20 * time.Millisecond)
	defer time.AfterFunc(10*time.Second, func() {
		t.Error("the deadline has passed, and the reader still waits")
		p.changed.Broadcast()
	}).Stop()
	p.changed.Wait()
}

// If the reply to an earlier call comes first, the connection breaks only once the server has carried out the call too.
func TestLoseReplyCarriesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := newPair()
		l := &link{conns: map[*conn]bool{}}
		c := &conn{end: client, link: l}
		l.lose("second")
		for _, call := range []string{"first", "second"} {
			if _, err := c.Write([]byte(call)); err != nil {
				t.Fatal(err)
			}
		}
		var carriedOut atomic.Bool
		go func() {
			b := make([]byte, 100)
			_, _ = server.Write([]byte("reply"))
			time.Sleep(time.Second)
			n, _ := server.Read(b)
			carriedOut.Store(string(b[:n]) == "firstsecond")
			_, _ = server.Read(b)
			_ = server.Close()
		}()
		if _, err := c.Read(make([]byte, 100)); err != io.EOF || !carriedOut.Load() {
			t.Errorf("Read: %v; carried out: %t", err, carriedOut.Load())
		}
	})
}
