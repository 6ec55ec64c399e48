CREATE TABLE IF NOT EXISTS worqr_outbox (
	id integer PRIMARY KEY AUTOINCREMENT,
	format integer NOT NULL,
	queue text NOT NULL,
	payload blob NOT NULL,
	task text NOT NULL,
	bytes integer NOT NULL,
	added_at real NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400),
	reason text
);
