-- heartbeat: renew a worker's lease on a queue, and say what there is to do.
--
-- ARGV[3] worker  id
-- ARGV[4] lease   ms until it expires; 0: never
-- ARGV[5] judge   1: the worker may judge others
-- Uses lib_keys, lib_lease.
--
-- Returns {deadline, now, held, more, rank, idle, stops, asks}: when the lease would have expired, and the time, in ms
-- of Redis; how many attempts the worker holds; how many tasks can start, also due and risky ones, or -1 in a pause, -2
-- in a return; its rank among the idle workers, or -1; how many are idle, if it holds something; up to 1,000 attempts
-- that must stop; and a sum of what it's asked for: 1 to call evict, 2 if nobody asserts a schedule anymore, 4 to call
-- record, since tasks were enqueued.
-- Fails with EVICTED if the worker isn't a member.
local worker, lease, judge = ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local working = q.working .. worker
local TURN = 1000 -- ms in which no other worker is asked to call evict, if its lease is long

local deadline = tonumber(redis.call('ZSCORE', q.workers, worker))
if not deadline then
  return redis.error_reply('EVICTED the worker is not a member of the queue')
end
local sound = pcall(read_state, 'taken', 'lease', 'look', 'added', 'seen') -- otherwise it only renews the lease

redis.call('ZREM', q.suspects, worker) -- as first_write
redis.call('ZADD', q.workers, string.format('%d', deadline_after(lease)), worker) -- Redis formats numbers slowly

-- One command says for an idle queue that there's nothing else.
local there = redis.call('EXISTS', q.queues, q.ready, q.schedule, q.risky, q.leaving, q.recurring, q.ages, working) > 0
local rank = redis.pcall('ZRANK', q.idle, worker)
rank = type(rank) == 'number' and rank or -1
if not sound then
  return { deadline, now, count('ZCARD', working), 0, rank, 0, {}, 0 }
end

local held, more, idle, stops, asks = 0, 0, 0, {}, 0
local returning = false
if there then
-- Uses lib_ages.
  returning = redis.call('EXISTS', q.leaving) == 1
  held = count('ZCARD', working)
  local length = count('LLEN', q.queues)
  note_ages(length)
  more = length + count('ZCARD', q.ready) + count('ZCARD', q.risky) + count('ZCOUNT', q.schedule, '-inf', now)
  if count('ZCOUNT', q.recurring, '-inf', '(' .. now) > 0 then
    asks = 2
  end
  if held + more == 0 and state.taken + state.added > state.seen then
    asks = asks + 4
  end
end
if held > 0 then
  idle = count('ZCARD', q.idle)
  stops = redis.call('ZRANGEBYSCORE', working, '-inf', '(0', 'LIMIT', 0, 1000)
end
if state.paused then
  more = -1
elseif returning then
  more = -2
end

-- Its own lease may have expired for the same reason as those of others. One that is far was set before Redis's clock
-- was set back. If all is well, nobody needs to call evict until the first lease ends.
local may_judge = judge and deadline >= now and not is_far(deadline)
if (state.look <= now or is_far(state.look)) and (may_judge or returning) then
  local first = tonumber(redis.call('ZRANGE', q.workers, 0, 0, 'WITHSCORES')[2])
  local far = state.lease > 0 and redis.call('ZCOUNT', q.workers, '(' .. now + state.lease, '(9007199254740991') or 0
  local look = math.ceil(first) -- another program may have written any deadline
  if returning or first < now or far > 0 or redis.call('EXISTS', q.suspects) == 1 then
    asks, look = asks + 1, now + (lease > 0 and math.min(TURN, math.floor(lease / 3)) or TURN)
  end
  redis.call('HSET', q.state, 'look', look)
end
if lease > state.lease then
  redis.call('HSET', q.state, 'lease', lease) -- options were changed, or Redis has lost it
end
return { deadline, now, held, more, rank, idle, stops, asks }
