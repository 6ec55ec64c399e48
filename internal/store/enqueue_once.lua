-- enqueue_once: enqueue, unless a call with the same nonce has already done so
-- within its window.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] once     string   the mark of the nonce, with a TTL
-- KEYS[4] workers  zset     worker → lease deadline, ms
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] enqueue  channel  gets the count, for observers
-- ARGV[3] window   ms
-- ARGV[4] payload  the first of one or more
-- Uses lib_wake, lib_push.
--
-- Returns 1, or 2 if nothing was waiting and no worker serves the queue; 0 for a repeated
-- call.
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
local at = 4
local _, alone = push(KEYS[1], KEYS[2], KEYS[4], ARGV[1], ARGV[2], at)
redis.call('SET', KEYS[3], '1', 'PX', ARGV[3])
return alone and 2 or 1
