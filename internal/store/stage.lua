-- stage: put a page of a large enqueue aside, on a list of its own. Nobody else sees it
-- until commit; without that it is gone after a while. It may be repeated.
--
-- KEYS[1] batch   list  the pages so far, as they will be in the queue
-- ARGV[1] before  how many payloads they have
-- ARGV[2] ttl     ms
-- ARGV[3] payload the first of one or more
--
-- Returns how many there are now. Fails with BATCH when pages are missing, or the batch
-- was committed.
local before, count = tonumber(ARGV[1]), #ARGV - 2
local length = redis.call('LLEN', KEYS[1])
local open = length == 0 or redis.call('PTTL', KEYS[1]) > 0 --! left bound.2 constant.2
if open and length == before + count then
  return length -- a copy
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
