-- enlist: add a name to a set, even if Redis is full.
--
-- KEYS[1] names  set
-- ARGV[1] name
redis.call('SREM', KEYS[1], '') -- needs no memory, so later writes are allowed even if Redis is full
return redis.call('SADD', KEYS[1], ARGV[1])
