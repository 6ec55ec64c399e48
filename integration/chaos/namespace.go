package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// namespaces are network namespaces of the kernel, one per peer, which need root. Lost packets
// affect a peer as they would affect a separate machine.
type namespaces struct {
	server  *server
	port    string // of the server
	n       int
	signals chan os.Signal // that abort a run

	mu   sync.Mutex
	laid map[string]bool // rules
}

func (s *namespaces) name(slot int) string { return fmt.Sprintf("chaos%d.%d", os.Getpid(), slot) }
func (s *namespaces) device(slot int) string {
	return fmt.Sprintf("ch%d.%d", os.Getpid()%1_000_000, slot)
}
func (s *namespaces) address(slot int) string { return fmt.Sprintf("10.213.%d.1", slot) }
func (s *namespaces) peer(slot int) string    { return fmt.Sprintf("10.213.%d.2", slot) }

// sh runs system commands, one per line.
func sh(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

func newNamespaces(n int, port string) (*namespaces, error) {
	s := &namespaces{port: port, n: n, signals: make(chan os.Signal, 1), laid: map[string]bool{}}
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, broken := <-s.signals; broken {
			s.close()
			os.Exit(1)
		}
	}()
	for slot := range n {
		name, device := s.name(slot), s.device(slot)
		if err := sh(
			"ip netns add "+name,
			fmt.Sprintf("ip link add %s type veth peer name eth0 netns %s", device, name),
			fmt.Sprintf("ip addr add %s/30 dev %s", s.address(slot), device),
			"ip link set "+device+" up",
			fmt.Sprintf("ip -n %s addr add %s/30 dev eth0", name, s.peer(slot)),
			fmt.Sprintf("ip -n %s link set eth0 up", name),
		); err != nil {
			return s, err
		}
	}
	return s, nil
}

// namespacesWork returns nil if namespaces and packet filters can be created. That needs root, the
// programs ip and iptables, and a kernel or container that allows it.
func namespacesWork() error {
	if os.Geteuid() != 0 {
		return errors.New("that needs root")
	}
	for _, program := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("that needs %s in PATH", program)
		}
	}
	s, err := newNamespaces(1, "1")
	defer s.close()
	if err != nil {
		return err
	}
	for _, kind := range []string{"packets rejected", "packets lossy"} {
		heal, err := s.cut(0, kind)
		if err != nil {
			return err
		}
		if err := heal(); err != nil {
			return err
		}
	}
	return nil
}

// close removes the remaining rules, and the namespaces with their devices.
func (s *namespaces) close() {
	signal.Stop(s.signals)
	s.mu.Lock()
	defer s.mu.Unlock()
	for rule := range s.laid {
		_ = sh("iptables -w -D " + rule) // best effort
	}
	for slot := range s.n {
		_ = sh("ip netns del " + s.name(slot)) // it may not exist
	}
}

// packetCuts are the kinds of cut, as rules about the packets of a device (%[1]s) and the port of
// the server (%[2]s).
var packetCuts = map[string][]string{
	"packets":          {"INPUT -i %[1]s -p tcp --dport %[2]s -j DROP", "OUTPUT -o %[1]s -p tcp --sport %[2]s -j DROP"},
	"packets up":       {"INPUT -i %[1]s -p tcp --dport %[2]s -j DROP"},
	"packets down":     {"OUTPUT -o %[1]s -p tcp --sport %[2]s -j DROP"},
	"packets rejected": {"INPUT -i %[1]s -p tcp --dport %[2]s -j REJECT --reject-with tcp-reset"},
	"packets lossy": {
		"INPUT -i %[1]s -p tcp --dport %[2]s -m statistic --mode random --probability 0.2 -j DROP",
		"OUTPUT -o %[1]s -p tcp --sport %[2]s -m statistic --mode random --probability 0.2 -j DROP",
	},
	"packets half-open": nil, // drops those of the subscribed connection
}

// cut makes the packets of a slot fail in one way, and returns a function that repairs that.
func (s *namespaces) cut(slot int, kind string) (heal func() error, err error) {
	rules := packetCuts[kind]
	if kind == "packets half-open" {
		port := s.subscriber(slot)
		if port == "" {
			return func() error { return nil }, nil
		}
		rules = []string{"OUTPUT -o %[1]s -p tcp --sport %[2]s --dport " + port + " -j DROP"}
	}
	var mine []string
	heal = func() (err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, rule := range mine {
			err = errors.Join(err, sh("iptables -w -D "+rule))
			delete(s.laid, rule)
		}
		return err
	}
	for _, rule := range rules {
		rule = fmt.Sprintf(rule, s.device(slot), s.port)
		if err := s.lay(rule); err != nil {
			return nil, errors.Join(err, heal())
		}
		mine = append(mine, rule)
	}
	return heal, nil
}

func (s *namespaces) lay(rule string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := sh("iptables -w -I " + rule)
	if err == nil {
		s.laid[rule] = true
	}
	return err
}

// subscriber returns the port from which the peer of a slot has subscribed; "" if it hasn't.
func (s *namespaces) subscriber(slot int) (port string) {
	clients := redistest.Sure(redis.String(s.server.do([]any{"CLIENT", "LIST", "TYPE", "pubsub"}), nil))(s.server.t)
	for line := range strings.Lines(clients) {
		if _, rest, ok := strings.Cut(line, " addr="+s.peer(slot)+":"); ok {
			port, _, _ = strings.Cut(rest, " ")
		}
	}
	return port
}

func cutNamespaces(o options, number int) *report {
	o.peers = min(o.peers, 8)
	var n *namespaces
	s := setup{durability: everysec, everywhere: true, cut: true, tail: 4*o.lease + 4*time.Second, spec: load.Config{Faults: true}}
	s.place = func(a *arena) func(int) (string, []string) {
		_, port, _ := strings.Cut(a.server.Addr(), ":")
		var err error
		n, err = newNamespaces(o.peers, port)
		n.server = a.server
		a.t.Cleanup(n.close)
		peertest.Must(a.t, err)
		return func(slot int) (string, []string) {
			return strings.Replace(a.url, "127.0.0.1", n.address(slot), 1), []string{"ip", "netns", "exec", n.name(slot)}
		}
	}
	return play(o, number, s, func(a *arena) {
		a.cutLinks(a.cuts*len(packetCuts)/len(toxicCuts), slices.Sorted(maps.Keys(packetCuts)), n.cut)
	})
}
