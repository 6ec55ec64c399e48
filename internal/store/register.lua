-- register: write a peer's registration, for people and tools.
--
-- KEYS[1] worker   hash  name, host, pid, started, version, queues, lease, stuck,
--                        protocol
-- ARGV[1] ttl      ms; 0: never expires
-- ARGV[2] name     for people
-- ARGV[3] host     of the process
-- ARGV[4] pid      of the process
-- ARGV[5] started  ms, by the clock of the peer
-- ARGV[6] version  of the library
-- ARGV[7] queues   JSON array of names
-- ARGV[8] lease    ms; less than 0: never expires
-- ARGV[9] stuck    number of handlers still running after their context has ended
-- ARGV[10] protocol version that the peer speaks
redis.call('DEL', KEYS[1]) -- needs no memory, so later writes are allowed even if Redis is full
redis.call('HSET', KEYS[1], 'name', ARGV[2], 'host', ARGV[3], 'pid', ARGV[4],
  'started', ARGV[5], 'version', ARGV[6], 'queues', ARGV[7], 'lease', ARGV[8], 'stuck', ARGV[9],
  'protocol', ARGV[10])
if tonumber(ARGV[1]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 1
