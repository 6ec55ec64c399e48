-- stage: append a page of a large enqueue to a separate list. Workers don't see it until
-- commit; without a commit, it expires. A call can be repeated.
--
-- KEYS[1] batch   list  the pages so far, in the order of the queue
-- ARGV[1] before  how many payloads these pages have
-- ARGV[2] ttl     ms
-- ARGV[3] payload the first of one or more
--
-- Returns how many payloads there are now. Fails with BATCH if pages are missing or the
-- batch has been committed.
local before, count = tonumber(ARGV[1]), #ARGV - 2
local length = redis.call('LLEN', KEYS[1])
local open = length == 0 or redis.call('PTTL', KEYS[1]) > 0
if open and length == before + count then
  return length -- a copy of an earlier call
end
if not open or length ~= before then
  return redis.error_reply('BATCH pages of the batch are missing')
end
local at = 3
for i = at, #ARGV, 5000 do -- unpack has a limit
  redis.call('LPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 4999, #ARGV)))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return length + count
