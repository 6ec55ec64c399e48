-- evict: end the membership of workers that are dead, and return their tasks to the front. A worker is evicted after
-- two looks: its lease has expired, and after a grace, in which it may have been late, it still hasn't renewed it.
--
-- ARGV[3] target  evicts this worker, whether its lease has expired or not; "": looks for dead ones
-- ARGV[4] judge   Redis's time in ms until which the caller may evict others, at most two graces from now
-- ARGV[5] grace   ms between the looks
-- Uses lib_queue, lib_record, lib_merge, lib_recur, lib_end, lib_open, lib_return.
--
-- Returns {evicted, returned, wait}: each worker that was evicted and how many attempts it held; how many tasks were
-- returned; and in how many ms to call again without a worker: 0 if there's more to do now, -1 if the caller may not
-- judge. Fails if Redis refuses to return a task, as with NOPERM, and nobody was evicted: call it again.
local target, judge, grace = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local SUSPECTED, FENCED = 1000, 200 -- workers in a call
local may_judge = now <= judge and judge < now + 2 * grace
read_state()
check_types(q, 'workers', 'suspects', 'leaving', 'rounds')
local lease = state.lease > 0 and state.lease or 2 * grace -- the longest

first_write()

-- Mends what a clock that was ahead has written. A lease that never ends has the last deadline, 2^53 - 1.
local function mend_far()
  if state.lease == 0 then
    return
  end
  local far = redis.call('ZRANGEBYSCORE', q.workers, '(' .. now + lease, '(9007199254740991', 'LIMIT', 0, SUSPECTED)
  for _, member in ipairs(far) do
    redis.call('ZADD', q.workers, now + lease, member)
  end
  far = redis.call('ZRANGEBYSCORE', q.suspects, '(' .. now + math.max(lease, grace), '+inf', 'LIMIT', 0, SUSPECTED)
  for _, member in ipairs(far) do
    redis.call('ZREM', q.suspects, member)
  end
end

-- Suspects members whose lease has expired. Those are the first by deadline, and the first of them are suspects
-- already. Returns whether more are left to suspect.
local function suspect()
  local known = redis.call('ZCARD', q.suspects)
  local expired = redis.call('ZRANGEBYSCORE', q.workers, '-inf', '(' .. now, 'LIMIT', known, SUSPECTED)
  for _, member in ipairs(expired) do
    redis.call('ZADD', q.suspects, 'NX', now + grace, member)
  end
  return #expired == SUSPECTED
end

local evicted = {}
local function evict(dead)
  for _, member in ipairs(dead) do
    evicted[#evicted + 1], evicted[#evicted + 2] = member, count('ZCARD', q.working .. member)
  end
  fence(dead, 1)
end

-- Evicts suspects whose time is over, and forgets those that have renewed their lease. Returns whether more are left
-- to this caller.
local function decide()
  local due = redis.call('ZRANGEBYSCORE', q.suspects, '-inf', now, 'LIMIT', 0, FENCED)
  if #due == 0 then
    return false
  end
  local dead, alive = {}, 0
  for i, deadline in ipairs(redis.call('ZMSCORE', q.workers, unpack(due))) do
    if not deadline or tonumber(deadline) >= now then
      alive = alive + redis.call('ZREM', q.suspects, due[i])
    elseif may_judge then
      dead[#dead + 1] = due[i]
    end
  end
  if #dead > 0 then
    evict(dead)
  end
  return #due == FENCED and alive + #dead > 0
end

-- Returns when there is something to do again: the first lease or suspicion ends.
local function next_look()
  local latest = now + lease
  local deadline = redis.call('ZRANGEBYSCORE', q.workers, now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or latest
  local suspicion = redis.call('ZRANGE', q.suspects, 0, 0, 'WITHSCORES')[2] or latest
  return math.max(0, math.ceil(math.min(tonumber(deadline), tonumber(suspicion), latest))) -- never -0
end

local more = false
if target == '' then
  mend_far()
  more = suspect()
  more = decide() or more
elseif redis.call('ZSCORE', q.workers, target) then
  evict({ target })
end
local returned, returning, refusal = 0, true, nil
if not more then -- first all are fenced, so that their tasks keep their order
  returned, returning, refusal = return_tasks()
end
more = more or returning
local look = more and now or next_look()
redis.call('HSET', q.state, 'look', look)
return #evicted == 0 and refusal or { evicted, returned, more and 0 or may_judge and math.max(look - now, 1) or -1 }
