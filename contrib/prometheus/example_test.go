package worqrprom_test

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/worqr/worqr"
	worqrprom "github.com/worqr/worqr/contrib/prometheus"
)

func Example() {
	metrics := worqrprom.New(nil)
	peer, err := worqr.Open("redis://localhost:6379", &worqr.Options{Trace: metrics.Trace()})
	if err != nil {
		panic(err)
	}
	metrics.Watch(peer)
	prometheus.MustRegister(metrics)

	http.Handle("GET /metrics", promhttp.Handler())
	http.Handle("GET /livez", peer.Livez())
	http.Handle("GET /readyz", peer.Readyz())
}
