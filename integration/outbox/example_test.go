package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

type pgxTx struct{ pgx.Tx }

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// The adapter of the page works.
func TestPgx(t *testing.T) {
	on(t, func(t *testing.T, d *database) {
		r := relaying(t, d, outbox.Options{})
		conn := redistest.Sure(pgx.Connect(t.Context(), d.dsn))(t)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		peertest.Must(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := r.Add(t.Context(), pgxTx{tx}, "tasks", worqr.TaskSpec{Payload: []byte("a\x00")})
			return err
		}))
		r.Nudge()
		r.sent("a\x00")
	}, postgres)
}
