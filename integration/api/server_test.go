package api

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// hostile is a server that answers whatever it is sent with the next of its
// pieces, and hangs up after the last.
func hostile(t testing.TB, pieces [][]byte) (url string) {
	t.Helper()
	l := sure(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close() //nolint:errcheck // it is hung up, whatever that says
				request := make([]byte, 64<<10)
				for _, piece := range pieces {
					if _, err := c.Read(request); err != nil {
						return
					}
					if _, err := c.Write(piece); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "redis://:c4n4ry@" + l.Addr().String()
}

// FuzzServer: a server that is no Redis gets errors out of a peer, and neither
// makes it fall, nor hang for longer than its context, nor tell a secret.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		"",
		"+OK\r\n|+PONG\r\n|:1\r\n|*0\r\n",
		"+OK\r\n|+PONG\r\n|*2\r\n:1\r\n$1\r\na\r\n|$-1\r\n",
		"+OK\r\n|+PONG\r\n|$99999999999999\r\n",
		"+OK\r\n|+PONG\r\n|*99999999999999\r\n",
		"+OK\r\n|+PONG\r\n|" + strings.Repeat("*1\r\n", 5000),
		"+OK\r\n|+PONG\r\n|*2\r\n$1\r\n7\r\n*1\r\n$1\r\nx\r\n",
		"-NOAUTH no\r\n", "+OK\r\n|-LOADING wait\r\n", "+OK\r\n|+PONG\r\n|-NOSCRIPT no\r\n|-NOSCRIPT no\r\n",
		"+OK\r\n|+PONG\r\n|*13\r\n*0\r\n*2\r\n:-9\r\n$4\r\ngone\r\n*0\r\n*0\r\n:1\r\n*0\r\n:1\r\n:1\r\n:1\r\n:1\r\n$0\r\n\r\n*0\r\n:1\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		p, q := openQueueAt(t, hostile(t, bytes.Split(said, []byte("|"))), worqr.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		errs := []error{p.StartWorker(ctx), q.StartWork(ctx), q.Enqueue(ctx, []byte("s3cr3t")), q.Put(ctx, "key", []byte("s3cr3t"), nil), q.EnqueueUnique(ctx, []byte("s3cr3t"))}
		note := func(_ any, err error) { errs = append(errs, err) }
		note(q.EnqueueOnce(ctx, "nonce", []byte("s3cr3t")))
		note(q.Cancel(ctx, []byte("s3cr3t")))
		note(q.CancelKey(ctx, "key"))
		note(q.Len(ctx))
		note(q.Peek(ctx))
		note(q.Stats(ctx))
		note(q.StartTasks(ctx, 3))
		note(p.FailWorker(ctx, "somebody"))
		note(p.Sweep(ctx))
		note(q.RequeueAllFailed(ctx))
		for v, err := range q.Tasks(ctx) {
			note(v, err)
		}
		for v, err := range q.Running(ctx) {
			note(v, err)
		}
		for v, err := range q.Failed(ctx) {
			note(v, err)
		}
		for v, err := range p.Workers(ctx) {
			note(v, err)
		}
		for v, err := range p.Queues(ctx) {
			note(v, err)
		}
		errs = append(errs, p.Close())
		for _, err := range errs {
			if err != nil && (strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "c4n4ry")) && !bytes.Contains(said, []byte("s3cr3t")) {
				t.Errorf("a secret is told: %v", err)
			}
		}
	})
}
