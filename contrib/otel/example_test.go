package worqrotel_test

import (
	"context"

	"github.com/worqr/worqr"
	worqrotel "github.com/worqr/worqr/contrib/otel"
)

func Example() {
	telemetry := worqrotel.New(nil)
	peer, err := worqr.Open("redis://localhost:6379", &worqr.Options{Trace: telemetry.Trace()})
	if err != nil {
		panic(err)
	}
	peer.Use(telemetry.Handler) // before Handle
	emails := peer.Queue("emails")
	emails.Handle(func(ctx context.Context, t *worqr.Task) error {
		return nil // ctx has the span of this attempt
	}, nil)
	if _, err := telemetry.Add(context.Background(), emails, worqr.TaskSpec{Payload: []byte("hello")}); err != nil {
		panic(err)
	}
}
