package worqr_test

import (
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

func TestHistoryArguments(t *testing.T) {
	is := parallel(t)
	q, now := open(t, worqr.Options{Prefix: redistest.Prefix(t)}).Queue("q"), time.Now()
	for grain, span := range map[time.Duration]time.Duration{time.Second: time.Hour, time.Minute: 26 * time.Hour, time.Hour: 100 * 24 * time.Hour} {
		_, err := q.History(t.Context(), now.Add(-span), now, grain)
		is.True(is_(err, worqr.ErrInvalid))
	}
	all, err := q.History(t.Context(), now, now, time.Minute)
	is.NoErr(err)
	is.True(len(all) <= 1)
	_, err = worqr.Open("redis://localhost", &worqr.Options{Version: strings.Repeat("v", 101)})
	is.True(is_(err, worqr.ErrInvalid))
}
