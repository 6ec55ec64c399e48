-- enlist: put a name into a set, on a full Redis too.
--
-- KEYS[1] names  set
-- ARGV[1] name
redis.call('SREM', KEYS[1], '') -- needs no memory, so what follows may
return redis.call('SADD', KEYS[1], ARGV[1])
