package worqr_test

import (
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

func TestBadProperties(t *testing.T) {
	is := parallel(t)
	_, q := openQueue(t, worqr.Options{})
	many := map[string]string{}
	for len(many) <= worqr.MaxHeaders {
		many[strings.Repeat("h", len(many)+1)] = ""
	}
	for name, c := range map[string]struct {
		props worqr.Properties
		want  error
	}{
		"header without a name": {worqr.Properties{Headers: map[string]string{"": "v"}}, worqr.ErrInvalid},
		"many headers":          {worqr.Properties{Headers: many}, worqr.ErrTooLarge},
		"long header":           {worqr.Properties{Headers: map[string]string{"h": strings.Repeat("v", worqr.MaxHeaderBytes)}}, worqr.ErrTooLarge},
		"Expires in year 10000": {worqr.Properties{Expires: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, worqr.ErrInvalid},
		"Timeout":               {worqr.Properties{Timeout: -1}, worqr.ErrInvalid},
		"MaxRetries":            {worqr.Properties{MaxRetries: 1 << 30}, worqr.ErrInvalid},
		"OnceFor alone":         {worqr.Properties{OnceFor: time.Hour}, worqr.ErrInvalid},
		"OnceFor too long":      {worqr.Properties{Once: "o", OnceFor: worqr.MaxOnceFor + 1}, worqr.ErrInvalid},
		"long Once":             {worqr.Properties{Once: strings.Repeat("o", worqr.MaxKeySize+1)}, worqr.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			_, err := q.Add(t.Context(), nil, &c.props)
			is.True(is_(err, c.want))
			if c.props.Once == "" {
				_, err = q.AddMany(t.Context(), []worqr.TaskSpec{{}, {Properties: c.props}})
				is.True(is_(err, c.want))
			}
			is.True(is_(q.Put(t.Context(), "key", nil, &worqr.PutOptions{Properties: c.props}), c.want))
		})
	}
	_, err := q.AddMany(t.Context(), []worqr.TaskSpec{{Properties: worqr.Properties{Once: "o"}}})
	is.True(is_(err, worqr.ErrInvalid))
	_, err = q.AddMany(t.Context(), nil)
	is.True(is_(err, worqr.ErrInvalid)) // as Enqueue of none
	stats, err := q.Stats(t.Context())
	is.NoErr(err)
	is.Equal(stats.Waiting+stats.Scheduled, 0)
}
