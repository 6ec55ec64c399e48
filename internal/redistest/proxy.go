package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Proxy stands before a server and refuses one command, as some services do that look like
// Redis. What scripts do it can't see.
type Proxy struct {
	to       string
	command  string
	hangsUp  bool // it ends the connection; otherwise it answers an error
	listener net.Listener
	wg       sync.WaitGroup
	refused  atomic.Int64

	mu    sync.Mutex // protects conns
	conns map[net.Conn]bool
}

// NewProxy returns a proxy to the address that answers a command with an error, or hangs up.
func NewProxy(t testing.TB, to, command string, hangsUp bool) *Proxy {
	t.Helper()
	OneServer(t, OwnProxy)
	p := &Proxy{to: to, command: command, hangsUp: hangsUp, listener: Sure(net.Listen("tcp", "127.0.0.1:0"))(t), conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// URL is where the proxy listens.
func (p *Proxy) URL() string { return "redis://" + p.listener.Addr().String() }

// Refused is how often the command was refused.
func (p *Proxy) Refused() int { return int(p.refused.Load()) }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		end := func() { _ = client.Close(); _ = server.Close() }
		p.wg.Go(func() { p.requests(server, client); end() })
		p.wg.Go(func() { _, _ = io.Copy(client, server); end() })
	}
}

// requests passes on requests. The error for a refused one comes from the server, in the
// place of the reply, by a script that answers nothing else.
func (p *Proxy) requests(server io.Writer, client io.Reader) {
	for in := bufio.NewReader(client); ; {
		name, request, err := readRequest(in)
		if err != nil {
			return
		}
		if strings.EqualFold(name, p.command) {
			p.refused.Add(1)
			if p.hangsUp {
				return
			}
			request = []byte("*3\r\n$4\r\nEVAL\r\n$57\r\nreturn redis.error_reply('ERR unsupported by this proxy')\r\n$1\r\n0\r\n")
		}
		if _, err := server.Write(request); err != nil {
			return
		}
	}
}

// readRequest reads an array of strings, and returns the first one and the whole.
func readRequest(in *bufio.Reader) (name string, raw []byte, err error) {
	var all bytes.Buffer
	number := func(mark string) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		all.WriteString(line)
		text, ok := strings.CutPrefix(strings.TrimSpace(line), mark)
		if !ok {
			return 0, fmt.Errorf("%q in place of %s", line, mark)
		}
		return strconv.Atoi(text)
	}
	n, err := number("*")
	for i := 0; i < n && err == nil; i++ {
		size := 0
		if size, err = number("$"); err != nil {
			break
		}
		before := all.Len()
		_, err = io.CopyN(&all, in, int64(size+2))
		if i == 0 && err == nil {
			name = string(all.Bytes()[before : before+size])
		}
	}
	return name, all.Bytes(), err
}
