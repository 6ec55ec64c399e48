-- enqueue_once: enqueue, unless a call with the same nonce has already done so
-- within its window.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] once     string   the mark of the nonce, with a TTL
-- KEYS[4] batches  zset     ids of batches that are committed, in their order
-- KEYS[5] workers  zset     worker → lease deadline, ms
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] enqueue  channel  told the count, for observers
-- ARGV[3] window   ms
-- ARGV[4] payload  the first of one or more
-- Uses lib_wake, lib_push, lib_batch.
--
-- Returns 1, or 2 where nothing waited and nobody serves the queue; 0 when it has been
-- done before. Fails with UNMOVED while a batch waits to be moved first.
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
local refusal = behind(KEYS[4])
if refusal then
  return refusal
end
local at = 4
local _, alone = push(KEYS[1], KEYS[2], KEYS[5], ARGV[1], ARGV[2], at)
redis.call('SET', KEYS[3], '1', 'PX', ARGV[3])
return alone and 2 or 1
