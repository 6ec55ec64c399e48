-- lib_failed: the failed queue. A failed task is an entry of the second lane of
-- a queue of its own, called "k:" and the process that failed last. Besides what
-- waits, its hash tells of the failure: kind, reason, tries, deaths, worker, at,
-- and under which entry the task was ("" for the list). Workers that serve the
-- failed queue take it from there; otherwise it stays to be looked at.

-- The failed queue, by what stands around the kind in the names of its keys.
local function failed_queue(head, tail, wake_channel)
  return {
    schedule = head .. 'schedule' .. tail, contents = head .. 'contents' .. tail,
    idle = head .. 'idle' .. tail, workers = head .. 'workers' .. tail, keyed = head .. 'keyed' .. tail .. ':', wake = wake_channel,
  }
end

-- The oldest go where there are more than keep, of those with a score from low
-- on; at most 100 in one call, in case keep has become less. What was given up
-- has ASIDE added to its time.
local function trim(lane, low, keep)
  for _ = 1, math.min(redis.call('ZCOUNT', lane.schedule, low, '+inf') - keep, 100) do
    local oldest = redis.call('ZRANGEBYSCORE', lane.schedule, low, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local aside = redis.call('ZRANGEBYSCORE', lane.schedule, ASIDE, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #aside > 0 and tonumber(aside[2]) - ASIDE < tonumber(oldest[2]) then
      oldest = aside
    end
    unwait(lane, oldest[1])
  end
end

-- Whether tasks can be buried: its keys are what they should be.
local function buries(failed)
  return type(redis.pcall('ZCARD', failed.schedule)) == 'number'
    and type(redis.pcall('ZCARD', failed.contents)) == 'number'
end

local function bury(failed, keep, worker, id, task)
  local grave = 'k:' .. id
  await(failed, grave, task.payload, now, 0, 0)
  redis.call('HSET', failed.keyed .. grave, 'kind', task.kind, 'reason', task.reason, 'tries', task.retries,
    'deaths', task.crashes, 'worker', worker, 'at', now, 'from', is_key(task.entry) and task.entry or '')
  plan(failed, grave, now)
  if keep > 0 and redis.pcall('ZCOUNT', failed.workers, now, '+inf') == 0 then -- nobody works on them
    trim(failed, '-inf', keep)
  end
end
