-- repair: mend one flaw, if it's still there. What must be returned then belongs to a worker that leaves: the caller
-- calls evict.
--
-- ARGV[3] flaw    as internal/invariants names it
-- ARGV[4] name    of the attempt, task, worker or schedule
-- ARGV[5] detail  the deadline, or the times of the schedule, as they were seen; or what a number is raised to
-- Uses lib_queue, lib_lease, lib_record, lib_about, lib_fence.
--
-- Returns 1 if it's mended. Fails with WRONGTYPE if a key of the queue has the wrong type.
local flaw, name, detail = ARGV[3], ARGV[4], ARGV[5]
local WORKER = 'repair' -- holds what nobody held
read_state()
check_types(q, 'queues', 'workers', 'suspects', 'leaving', 'idle', 'rounds', unpack(NAMED))
local mends = {}

-- The worker's tasks are returned by evict.
local function leaves(worker, evicted)
  fence({ worker }, evicted)
  redis.call('HSET', q.state, 'look', now) -- in case the caller dies
  return true
end

-- Nobody knows the token of an attempt that nobody holds. No cancel covers the new one: the task may run once too often.
local function give_back(id)
  state.token = state.token + 1
  redis.call('ZADD', q.working .. WORKER, state.token, id)
  return leaves(WORKER, 0)
end

-- A list that nobody holds. If another attempt runs the name in it, or the name waits, only the list goes.
function mends.unowned(id)
  local task = name_in(id)
  if token_of(id) or redis.call('EXISTS', q.process .. id) == 0 then
    return false
  elseif not task or read_run(redis.call('HGET', q.runs, task)).attempt == id then
    return give_back(id)
  end
  return redis.call('DEL', q.process .. id) == 1
end

-- A name whose attempt has neither a list nor a worker.
function mends.stuck(task)
  local id = read_run(redis.call('HGET', q.runs, task)).attempt
  if id == '' or token_of(id) or redis.call('EXISTS', q.process .. id) == 1 then
    return false
  end
  redis.call('RPUSH', q.process .. id, task)
  return give_back(id)
end

-- A worker that holds tasks and is no member.
function mends.stray(worker)
  return not redis.call('ZSCORE', q.workers, worker) and leaves(worker, 0)
end

-- A member that has sent no heartbeat since it was seen.
function mends.dead(worker)
  return redis.call('ZSCORE', q.workers, worker) == detail and leaves(worker, 1)
end

-- A number that is lower than one in use.
function mends.token()
  return tonumber(detail) < 2 ^ 53 and redis.call('HSET', q.state, flaw, math.max(state[flaw], tonumber(detail)))
end
mends.place = mends.token

-- A schedule whose times were written by a clock that was ahead. A peer that has it makes it again.
function mends.ahead(schedule)
  local till, passed = redis.call('ZSCORE', q.recurring, schedule), redis.call('HGET', q.recurrence, 'passed:' .. schedule)
  if not (till and passed) or till .. ' ' .. passed ~= detail then
    return false
  end
  redis.call('ZADD', q.recurring, math.min(tonumber(till), now), schedule)
  redis.call('HSET', q.recurrence, 'passed:' .. schedule, math.min(tonumber(passed), now))
  return true
end

first_write()
return mends[flaw](name) and 1 or 0
