-- register: write a peer's registration, for people and tools.
--
-- KEYS     worker, a hash; and one that never exists
-- ARGV[1]  ttl  ms; 0: never expires
-- then the fields and values: name, host, pid, started, version, queues, lease, protocol, and how it is.
redis.call('DEL', KEYS[1]) -- needs no memory, so later writes are allowed even if Redis is full
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
if tonumber(ARGV[1]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 1
