-- list: add a name to a list of the fleet, also if Redis is full.
--
-- KEYS     the list, a set; and one that never exists
-- ARGV[1]  name  of a queue, or of a worker
redis.call('SREM', KEYS[1], '') -- needs no memory, so later writes are allowed even if Redis is full
return redis.call('SADD', KEYS[1], ARGV[1])
