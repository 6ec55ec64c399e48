CREATE TABLE IF NOT EXISTS worqr_outbox (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	format smallint NOT NULL,
	queue text NOT NULL,
	payload bytea NOT NULL,
	task text NOT NULL,
	bytes bigint NOT NULL,
	added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	reason text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000000);
