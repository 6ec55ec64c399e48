package outbox_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/inspect"
)

func Example() {
	var db *sql.DB // opened with your driver
	ctx, id := context.Background(), "17"
	serve := func() error {
		ob := outbox.New(db, outbox.Postgres, nil)
		if err := ob.Migrate(ctx); err != nil {
			return err
		}
		peer, err := worqr.Open("redis://localhost:6379", &worqr.Options{Sources: []inspect.Source{ob.Source()}})
		if err != nil {
			return err
		}
		if err := ob.Handle(peer); err != nil {
			return err
		}
		return peer.Run(ctx)
	}
	order := func(ob *outbox.Outbox) error {
		err := ob.InTx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
				return err
			}
			_, err := ob.Add(ctx, tx, "orders", worqr.TaskSpec{Payload: []byte(id), Key: "charge-" + id})
			return err
		})
		return err
	}
	_, _ = serve, order
}

func ExampleOutbox_Aside() {
	ctx, ob := context.Background(), outbox.New(new(sql.DB), outbox.Postgres, nil)
	list := func() error {
		for row, err := range ob.Aside(ctx) {
			if err != nil {
				return err
			}
			fmt.Println(row.ID, row.Queue, row.Reason)
		}
		return nil
	}
	_ = list
}
