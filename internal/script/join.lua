-- join: become a member of a queue. A request that arrives after the lease it
-- asks for would have ended is refused, so that a late copy cannot bring back
-- a worker that was failed.
--
-- KEYS[1] workers   zset  worker → lease deadline, ms
-- KEYS[2] suspects  zset  lapsed worker → when to fail it; 0 or less: being returned
-- KEYS[3] rounds    hash  worker → its last round
-- ARGV[1] worker    id
-- ARGV[2] lease     ms until it lapses; 0 never
-- ARGV[3] before    ms of Redis time
-- ARGV[4] round     the first of the membership; older requests come too late
--
-- Fails with EVICTED when the worker was failed or has left, or is too late.
local workers, suspects, worker, lease = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark = tonumber(redis.call('ZSCORE', suspects, worker) or 1)
redis.call('ZSCORE', workers, worker) -- of another type: fail before anything changes
local last = tonumber(redis.call('HGET', KEYS[3], worker) or 0)
if now > tonumber(ARGV[3]) or mark <= 0 then
  return redis.error_reply('EVICTED the worker has been failed or has left')
end
redis.call('ZREM', suspects, worker) -- needs no memory, so the next may, on a full Redis too
redis.call('ZADD', workers, lease > 0 and now + lease or 9007199254740991, worker)
if last < tonumber(ARGV[4]) then -- else it is a late copy, and rounds have been made since
  redis.call('HSET', KEYS[3], worker, ARGV[4])
end
return 1
