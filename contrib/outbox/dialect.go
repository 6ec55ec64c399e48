package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Dialect is the SQL of a database.
type Dialect int

const (
	Postgres Dialect = iota
	MySQL            // MariaDB, too
	SQLite
)

// A dialect is what differs between databases.
type dialect struct {
	name     string
	numbered bool   // placeholders are $1, $2
	next     string // makes the next statement one that doesn't make writers wait
	end      string // commits it, if the connection doesn't by itself
	age      string // of a row, in seconds
	remove   string // deletes rows by their ids: see change
	dirty    bool   // reads outside of transactions may see rows that aren't committed
	lock     string // begins a migration, which others wait for
	unlock   string // ends it
}

const (
	remove = "DELETE FROM worqr_outbox WHERE id IN (%[1]s)"
	update = "UPDATE worqr_outbox SET reason = ? WHERE id IN (%[1]s)"
)

var dialects = [...]dialect{
	Postgres: {
		name: "postgres", numbered: true,
		age:    "extract(epoch FROM clock_timestamp() - added_at)::float8",
		remove: remove,
		lock:   "BEGIN; SELECT pg_advisory_xact_lock(8031924715)", unlock: "COMMIT",
	},
	MySQL: {
		name: "mysql", next: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", end: "COMMIT",
		age: "unix_timestamp(now(6)) - unix_timestamp(added_at)",
		// With IN, the server may scan the table, and then wait for rows of open transactions.
		remove: "DELETE o FROM (SELECT 0 AS id UNION ALL SELECT %[2]s) AS d STRAIGHT_JOIN worqr_outbox AS o ON o.id = d.id WHERE true",
		dirty:  true,
		lock:   "DO get_lock('worqr_outbox', 3600)", unlock: "COMMIT; DO release_lock('worqr_outbox')", // every statement of a migration may be repeated
	},
	SQLite: {
		name:   "sqlite",
		age:    "(julianday('now') - 2440587.5) * 86400 - added_at",
		remove: remove,
		lock:   "BEGIN IMMEDIATE", unlock: "COMMIT",
	},
}

// rebind replaces ? by the placeholders of the database. No statement of this package has a ? in a string.
func (d *dialect) rebind(query string) string {
	if !d.numbered {
		return query
	}
	parts := strings.Split(query, "?")
	for i := range parts[:len(parts)-1] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// among returns "(?,?,?)".
func among(n int) string { return "(?" + strings.Repeat(",?", n-1) + ")" }

// Migrations has the migrations of each database: postgres, mysql and sqlite are folders with 1.sql and so on. Carry them
// out with a tool of yours, or with Migrate, but not with both.
//
//go:embed migrations
var Migrations embed.FS

// Migrate creates the tables that the outbox needs, or updates them. Several processes may call it at once. The user of
// the database needs the right to create tables; Add needs INSERT, and the relay SELECT, UPDATE and DELETE, too.
func (ob *Outbox) Migrate(ctx context.Context) error {
	return wrap("migrate", ob.migrate(ctx))
}

func (ob *Outbox) migrate(ctx context.Context) (err error) {
	conn, err := ob.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = run(ctx, conn, ob.unlock)
		}
		if err != nil {
			discard(conn)
		}
		_ = conn.Close()
	}()
	if err := run(ctx, conn, ob.lock); err != nil {
		return err
	}
	if err := run(ctx, conn, "CREATE TABLE IF NOT EXISTS worqr_outbox_versions (version integer NOT NULL PRIMARY KEY)"); err != nil {
		return err
	}
	var done int
	if err := conn.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM worqr_outbox_versions").Scan(&done); err != nil {
		return err
	}
	for n := done + 1; ; n++ {
		text, err := fs.ReadFile(Migrations, path.Join("migrations", ob.name, strconv.Itoa(n)+".sql"))
		if err != nil {
			return nil // there are no more
		}
		if err := run(ctx, conn, string(text)); err != nil {
			return fmt.Errorf("migration %d: %w", n, err)
		}
		if err := run(ctx, conn, "INSERT INTO worqr_outbox_versions (version) VALUES ("+strconv.Itoa(n)+")"); err != nil {
			return err
		}
	}
}

// discard keeps a connection from being used again. What it holds ends, and what was set for its next transaction.
func discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }

// run carries out statements, one at a time, since not all drivers take several.
func run(ctx context.Context, conn *sql.Conn, text string) error {
	for statement := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
