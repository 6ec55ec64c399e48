CREATE TABLE IF NOT EXISTS worqr_outbox (
	id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
	format smallint NOT NULL,
	queue varbinary(255) NOT NULL,
	payload longblob NOT NULL,
	task mediumtext CHARACTER SET ascii NOT NULL,
	bytes bigint NOT NULL,
	added_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	reason text CHARACTER SET utf8mb4
) ENGINE = InnoDB;
