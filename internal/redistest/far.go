package redistest

import (
	"net"
	"runtime"
	"testing"
	"time"
)

// napping limits how many threads may sleep in a system call while others forward data: for
// milliseconds, the runtime considers such a thread busy, and data that arrives in the meantime
// would be late by as much.
const napping = 64

// Far returns a door to a server that seems to be far away: all bytes arrive half a round trip
// later, in both directions. It delays bytes without limiting their rate.
func Far(t testing.TB, to string, trip time.Duration) *Door {
	t.Helper()
	before := runtime.GOMAXPROCS(napping)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	return relay(t, to, func(client, server net.Conn) (requests, replies func()) {
		return func() { carry(server, client, trip/2) }, func() { carry(client, server, trip/2) }
	})
}

// A parcel is bytes in flight.
type parcel struct {
	bytes []byte
	due   time.Time
}

// mostParcels is how many may be in flight in one direction: of 64 KiB each, far more than any
// client here sends within half a round trip.
const mostParcels = 4096

// carry copies data from one side to the other, and delays each piece by the given time.
func carry(to, from net.Conn, takes time.Duration) {
	way := make(chan parcel, mostParcels)
	free := make(chan []byte, 64) // buffers for reuse
	over := make(chan struct{})
	defer close(over)
	go func() {
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
				case way <- parcel{buf[:n], time.Now().Add(takes)}:
				case <-over:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
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
