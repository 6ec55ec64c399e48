-- commit: accept all pages of a large enqueue in one step. haul moves them to the queue
-- afterwards. A call can be repeated. It does nothing if another call with the same nonce
-- has enqueued.
--
-- KEYS[1] batch    list    the pages
-- KEYS[2] batches  zset    ids of committed batches, in order
-- KEYS[3] once     string  the mark of the nonce, with a TTL
-- ARGV[1] enqueue  channel that gets the count, for observers
-- ARGV[2] id       of the batch
-- ARGV[3] count    of its payloads
-- ARGV[4] window   ms
-- Uses lib_batch.
--
-- Returns 1, or 0 if another call with the nonce has enqueued. Fails with BATCH if pages are
-- missing, and with Redis's error if the mark isn't a string.
if redis.call('EXISTS', KEYS[3]) == 1 then
  -- Another program may have stored a large value: one byte more than the id is enough.
  local mark = redis.call('GETRANGE', KEYS[3], 0, #ARGV[2])
  return mark == ARGV[2] and 1 or 0
end
local last = redis.call('ZRANGE', KEYS[2], UNMOVED, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
if redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[3]) then
  return redis.error_reply('BATCH pages of the batch are missing')
end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[4]) -- first, since a full Redis refuses it
redis.call('PERSIST', KEYS[1])
redis.call('ZADD', KEYS[2], math.min(math.max(tonumber(last) or 0, 0) + 1, PUT_ASIDE - 1), ARGV[2])
redis.pcall('PUBLISH', ARGV[1], ARGV[3])
return 1
