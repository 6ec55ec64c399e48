package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"github.com/worqr/worqr/internal/peertest"
)

// A network is one link, within the driver, between each peer and the server.
type network struct {
	links []*toxiproxy.Proxy
}

// newNetwork makes n links to the address. If deaf, subscribed connections receive nothing from the
// start.
func newNetwork(t testing.TB, n int, to string, deaf bool) *network {
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics log each change
	host := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w := &network{}
	t.Cleanup(w.close)
	for i := range n {
		link := toxiproxy.NewProxy(host, fmt.Sprintf("link%d", i), "127.0.0.1:0", to)
		peertest.Must(t, link.Start())
		w.links = append(w.links, link)
		peertest.Must(t, add(link, toxic{"deafness", "downstream", attributes{"deaf": deaf}}))
	}
	return w
}

func (w *network) close() {
	for _, link := range w.links {
		link.Stop()
	}
}

// throughLinks connects each peer through a link of a new network, which it stores in to.
func throughLinks(to **network, deaf bool) func(*arena) func(slot int) (string, []string) {
	return func(a *arena) func(int) (string, []string) {
		w := newNetwork(a.t, a.peers, a.server.Addr(), deaf)
		*to = w
		return func(slot int) (string, []string) {
			return strings.Replace(a.url, a.server.Addr(), w.links[slot].Listen, 1), nil
		}
	}
}

type attributes map[string]any

// A toxic changes or drops what travels in one direction of a link.
type toxic struct {
	Type       string     `json:"type"`
	Stream     string     `json:"stream"`
	Attributes attributes `json:"attributes"`
}

// toxicCuts are the kinds of cut. Data is dropped silently, while the connections stay open. A
// timeout of 0 never ends.
var toxicCuts = map[string][]toxic{
	"closed":    nil, // connections end, and no new ones are accepted
	"silent":    {{"timeout", "upstream", attributes{"timeout": 0}}, {"timeout", "downstream", attributes{"timeout": 0}}},
	"requests":  {{"timeout", "upstream", attributes{"timeout": 0}}},
	"replies":   {{"timeout", "downstream", attributes{"timeout": 0}}},
	"reset":     {{"reset_peer", "upstream", attributes{"timeout": 0}}, {"reset_peer", "downstream", attributes{"timeout": 0}}},
	"half-open": {{"deafness", "downstream", attributes{"deaf": true}}}, // subscribed connections receive nothing
	"latency":   {{"latency", "upstream", attributes{"latency": 100, "jitter": 90}}, {"latency", "downstream", attributes{"latency": 100, "jitter": 90}}},
	"bandwidth": {{"bandwidth", "upstream", attributes{"rate": 10}}, {"bandwidth", "downstream", attributes{"rate": 10}}},
	"slices":    {{"slicer", "upstream", attributes{"average_size": 20, "size_variation": 10, "delay": 500}}, {"slicer", "downstream", attributes{"average_size": 20, "size_variation": 10, "delay": 500}}},
}

// cut makes a link fail in one way, and returns a function that repairs it.
func (w *network) cut(slot int, kind string) (heal func() error, err error) {
	link := w.links[slot]
	switch kind {
	case "closed":
		link.Stop()
		return link.Start, nil
	case "half-open":
		return func() error { return deafen(link, false) }, deafen(link, true)
	}
	faults := toxicCuts[kind]
	for _, t := range faults {
		if err := add(link, t); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, t := range slices.Backward(faults) {
			if err := link.Toxics.RemoveToxic(context.Background(), t.Type+"_"+t.Stream); err != nil {
				return fmt.Errorf("repair a link: %w", err)
			}
		}
		return nil
	}, nil
}

func add(link *toxiproxy.Proxy, t toxic) error {
	encoded, err := json.Marshal(t)
	if err == nil {
		_, err = link.Toxics.AddToxicJson(bytes.NewReader(encoded))
	}
	if err != nil {
		return fmt.Errorf("cut a link: %w", err)
	}
	return nil
}

func deafen(link *toxiproxy.Proxy, deaf bool) error {
	change := fmt.Sprintf(`{"attributes": {"deaf": %v}}`, deaf)
	if _, err := link.Toxics.UpdateToxicJson("deafness_downstream", bytes.NewBufferString(change)); err != nil {
		return fmt.Errorf("cut a link: %w", err)
	}
	return nil
}

// deafness drops what the server sends on subscribed connections, and passes on everything else. It
// is always installed, to learn which connections these are.
type deafness struct {
	Deaf bool `json:"deaf"`
}

type hearing struct{ subscribed bool }

// NewState returns the state of one connection.
func (d *deafness) NewState() any { return &hearing{} }

// Pipe passes on what the server sends.
func (d *deafness) Pipe(stub *toxics.ToxicStub) {
	h := stub.State.(*hearing)
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			h.subscribed = h.subscribed || confirms(c)
			if !d.Deaf || !h.subscribed {
				stub.Output <- c
			}
		}
	}
}

// confirms reports whether the server confirms a subscription.
func confirms(c *stream.StreamChunk) bool {
	return bytes.Contains(c.Data, []byte("\r\n$9\r\nsubscribe\r\n")) || bytes.Contains(c.Data, []byte("\r\n$10\r\npsubscribe\r\n"))
}

func init() { toxics.Register("deafness", new(deafness)) }
