-- resume: end a pause and wake idle workers for what waits.
--
-- KEYS[1] paused   string   present while the queue is paused
-- KEYS[2] waiting  list     payloads; the tail is the front
-- KEYS[3] idle     zset     worker → idle since, ms
-- ARGV[1] wake     channel  prefix, with a worker appended
-- Uses lib_wake.
redis.call('DEL', KEYS[1])
local waiting = redis.pcall('LLEN', KEYS[2])
return wake(KEYS[3], ARGV[1], type(waiting) == 'number' and waiting or 0)
