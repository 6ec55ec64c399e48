// Command worker works on a queue, with metrics and probes, as deploy/fleet and deploy/kubernetes run it.
//
//	REDIS_URL     where Redis is; redis://localhost:6379 by default
//	WORQR_PREFIX  prefix of its keys; worqr by default
//	ADDR          address of /metrics, /livez and /readyz; :8080 by default
//	QUEUE         the queue that it serves; emails by default
//	PRODUCE       how many tasks a second it adds itself, for demos; none by default
//	CHECK         how often it checks the fleet, for alerts, such as 5m; never by default
//	DASHBOARD     if it's set, / is a dashboard that shows payloads and needs no login
//	HOSTS         host names at which browsers open it, separated by commas; localhost and IP addresses by default
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/worqr/worqr"
	worqrprom "github.com/worqr/worqr/contrib/prometheus"
	"github.com/worqr/worqr/dash"
)

// A config is the settings from the environment.
type config struct {
	redis, prefix, queue string
	produce              float64 // tasks a second
	dashboard            bool
	hosts                []string // of the dashboard
	check                time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx); err != nil {
		slog.Error("worker: exiting", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c := config{
		redis: cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), prefix: os.Getenv("WORQR_PREFIX"),
		queue: cmp.Or(os.Getenv("QUEUE"), "emails"), dashboard: os.Getenv("DASHBOARD") != "",
	}
	if hosts := os.Getenv("HOSTS"); hosts != "" {
		c.hosts = strings.Split(hosts, ",")
	}
	if rate := os.Getenv("PRODUCE"); rate != "" {
		var err error
		if c.produce, err = strconv.ParseFloat(rate, 64); err != nil || c.produce < 0 {
			return fmt.Errorf("PRODUCE=%q isn't a number of tasks a second", rate)
		}
	}
	if every := os.Getenv("CHECK"); every != "" {
		var err error
		if c.check, err = time.ParseDuration(every); err != nil || c.check < 0 {
			return fmt.Errorf("CHECK=%q isn't a duration", every)
		}
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), ":8080"))
	if err != nil {
		return err
	}
	return serve(ctx, c, listener)
}

// serve works until ctx ends, and then drains. The probes answer until it has drained.
func serve(ctx context.Context, c config, at net.Listener) error {
	metrics := worqrprom.New(&worqrprom.Options{CheckEvery: c.check})
	peer, err := worqr.Open(c.redis, &worqr.Options{Prefix: c.prefix, Trace: metrics.Trace()})
	if err != nil {
		return errors.Join(err, at.Close())
	}
	defer func() { _ = peer.Close() }() // Run has stopped its worker
	metrics.Watch(peer)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, collectors.NewGoCollector())

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /livez", peer.Livez())
	mux.Handle("GET /readyz", peer.Readyz())
	if c.dashboard {
		mux.Handle("/", dash.New(peer, &dash.Options{Title: c.queue, Hosts: c.hosts}))
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(at) }()

	queue := peer.Queue(c.queue)
	queue.Handle(work, &worqr.HandleOptions{Concurrency: 10, Timeout: time.Minute})
	if c.produce > 0 {
		go produce(ctx, queue, c.produce)
	}
	err = peer.Run(ctx)
	return errors.Join(err, server.Close(), ignore(<-served, http.ErrServerClosed))
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// work stands for a service's work. The payload selects the outcome.
func work(ctx context.Context, t *worqr.Task) error {
	kind := string(t.Payload)
	switch kind {
	case "broken":
		return worqr.Permanent(errors.New("it can never work"))
	case "shaky":
		if t.Attempt == 1 {
			return errors.New("it may work later")
		}
	case "slow":
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(2 * time.Second):
		}
	}
	return nil
}

// produce adds tasks until ctx ends.
func produce(ctx context.Context, queue *worqr.Queue, rate float64) {
	each := time.NewTicker(max(time.Duration(float64(time.Second)/rate), time.Microsecond))
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
		}
		kind := "quick"
		switch n := rand.IntN(1000); {
		case n < 5:
			kind = "broken"
		case n < 50:
			kind = "shaky"
		case n < 150:
			kind = "slow"
		}
		if _, err := queue.Add(ctx, worqr.TaskSpec{Payload: []byte(kind)}); err != nil && ctx.Err() == nil {
			slog.Warn("worker: can't add a task", "err", err)
		}
	}
}
