package main

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
)

// A proxy stands before a server as if it were far away: all bytes arrive half a round
// trip later, in both directions. It limits the time they take, not how many they are.
type proxy struct {
	url      string
	listener net.Listener
	to       string        // address of the server
	half     time.Duration // of the round trip
	procs    int           // GOMAXPROCS before
	done     sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	conns []net.Conn
	gone  bool
}

// napping is how many threads may nap while others carry: one that naps has the runtime believe for
// milliseconds that it is busy, and what comes meanwhile would arrive late by as much.
const napping = 64

// startProxy starts a proxy before the server.
func startProxy(s *server, trip time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &proxy{url: "redis://" + l.Addr().String(), listener: l, to: s.address, half: trip / 2}
	p.procs = runtime.GOMAXPROCS(napping)
	p.done.Go(p.accept)
	return p, nil
}

// stop ends the proxy and cuts its connections.
func (p *proxy) stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.gone = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
	runtime.GOMAXPROCS(p.procs)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(client) })
	}
}

// serve carries bytes between a client and the server until either has ended.
func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	end := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer end()
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	if p.gone {
		end()
	}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.carry(server, client); end() })
	both.Go(func() { p.carry(client, server); end() })
	both.Wait()
}

// A parcel is bytes on their way.
type parcel struct {
	bytes []byte
	due   time.Time
}

// mostParcels is how many may be on their way in one direction: of 64 KiB each, far more
// than any client here sends within half a round trip.
const mostParcels = 4096

// carry copies what comes from one side to the other, each piece half a round trip after
// it came.
func (p *proxy) carry(to, from net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	way := make(chan parcel, mostParcels)
	free := make(chan []byte, 64) // buffers to use again
	p.done.Go(func() {
		defer close(way)
		for {
			var buf []byte
			select {
			case buf = <-free:
			default:
				buf = make([]byte, 64<<10)
			}
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case way <- parcel{buf[:n], time.Now().Add(p.half)}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for next := range way {
		napUntil(next.due)
		if _, err := to.Write(next.bytes); err != nil {
			return
		}
		select {
		case free <- next.bytes[:cap(next.bytes)]:
		default:
		}
	}
}
