-- join: make a worker a member of a queue. The request names the queue's token from before
-- the request was made. If a worker has left or was evicted since, the join is refused and
-- the caller must ask again. So a late copy of a join can't bring back an evicted worker.
--
-- KEYS[1] workers   zset    worker → lease deadline, ms
-- KEYS[2] suspects  zset    worker with an expired lease → when to evict it; 0 or less: being returned
-- KEYS[3] rounds    hash    worker → its last round; fence → the token after the last leave or eviction;
--                           lease → the longest lease of the members, ms
-- KEYS[4] token     string  the last token issued
-- ARGV[1] worker    id
-- ARGV[2] lease     ms until it expires; 0: never
-- ARGV[3] asked     the token before the request was made
-- ARGV[4] round     the first of the membership; older requests are too late
--
-- Returns 1, or 0 if a worker has left or was evicted since.
-- Fails with EVICTED if the worker was evicted or is leaving.
local workers, suspects, rounds, worker, lease = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
local NEVER = 9007199254740991 -- the deadline of a lease that never ends; no token is this high
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark = tonumber(redis.call('ZSCORE', suspects, worker) or 1)
local member = redis.call('ZSCORE', workers, worker)
local last = tonumber(redis.call('HGET', rounds, worker)) or 0
local token = tonumber(redis.call('GET', KEYS[4]) or 0)
if not token or token ~= math.floor(token) or token < 0 or token >= NEVER then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
if mark <= 0 then
  return redis.error_reply('EVICTED the worker was evicted or has left')
end
if member and last >= tonumber(ARGV[4]) then
  return 1 -- this is a copy of an earlier join
end
local fence = token -- without members, there's no record of who left
if redis.call('EXISTS', rounds) == 1 then
  -- A fence above the token means that Redis has lost tokens. Then no join could name it.
  fence = math.min(token, tonumber(redis.call('HGET', rounds, 'fence')) or 0)
end
if tonumber(ARGV[3]) < fence then
  return 0
end
redis.call('ZREM', suspects, worker) -- needs no memory, so later writes are allowed even if Redis is full
redis.call('ZADD', workers, lease > 0 and now + lease or NEVER, worker)
redis.call('HSET', rounds, 'fence', fence, worker, ARGV[4])
if lease > (tonumber(redis.call('HGET', rounds, 'lease')) or 0) then
  redis.call('HSET', rounds, 'lease', lease)
end
return 1
