package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redisserver"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) {
	if spec, given := child.Given[load.Config](); given {
		os.Exit(load.Main(spec, worqr.Options{TLSConfig: redistest.TLS(spec.URL)}))
	}
	os.Exit(m.Run())
}

// TestSmoke runs a little of each campaign: two hundred kills, and some of all others.
func TestSmoke(t *testing.T) {
	if _, err := redisserver.Program(); err != nil {
		t.Fatal(err)
	}
	o := options{peers: 8, lease: 900 * time.Millisecond, fsync: always, span: 20 * time.Second}
	lasting := func(d durability) options {
		o := o
		o.fsync, o.restarts = d, 4
		return o
	}
	for name, c := range map[string]struct {
		campaign string
		options  func() options
	}{
		"kills":             {"kills", func() options { o := o; o.kills, o.peers, o.lease = 200, 12, 600*time.Millisecond; return o }},
		"zombies":           {"zombies", func() options { o := o; o.zombies = 12; return o }},
		"stalls":            {"stalls", func() options { o := o; o.stalls = 4; return o }},
		"links":             {"links", func() options { o := o; o.cuts = 18; return o }},
		"restarts always":   {"restarts", func() options { return lasting(always) }},
		"restarts everysec": {"restarts", func() options { return lasting(everysec) }},
		"restarts rdb":      {"restarts", func() options { return lasting(snapshot) }},
		"restarts none":     {"restarts", func() options { return lasting(nothing) }},
		"pubsub":            {"pubsub", func() options { return o }},
		"memory":            {"memory", func() options { return o }},
		"mix":               {"mix", func() options { return o }},
		"tls":               {"tls", func() options { return o }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := c.options()
			o.campaign = c.campaign
			var said bytes.Buffer
			err := o.run(&said)
			t.Logf("\n%s", said.String())
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
