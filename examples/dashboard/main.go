// Command dashboard serves a dashboard behind a password, next to a worker.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	peer, err := worqr.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")})
	check(err)
	peer.Queue("emails").Handle(func(ctx context.Context, t *worqr.Task) error { return nil }, nil)

	password := os.Getenv("DASHBOARD_PASSWORD")
	mux := http.NewServeMux()
	mux.Handle("/worqr/", dash.BasicAuth("", password, dash.New(peer, &dash.Options{AllowActions: true})))
	server := &http.Server{Handler: mux}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "localhost:8080"))
	check(err)
	go func() {
		log.Printf("serving http://%s/worqr/", listener.Addr())
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Fatal(err)
		}
	}()

	err = peer.Run(ctx) // until a signal; then it drains
	check(errors.Join(err, server.Shutdown(context.Background())))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
