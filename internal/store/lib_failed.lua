-- lib_failed: the failed queue. A failed task is an entry in the schedule of a separate
-- queue, named "k:" and the process that failed last. Besides the waiting part, its hash
-- describes the failure: kind, reason, tries, deaths, worker, at, from (the entry that the
-- task had; "" for the list) and planned (when it was due, if that's known). It keeps its
-- card. Workers that serve the failed queue take it from there; otherwise it stays for
-- inspection.

-- Returns the failed queue, given its key names before and after the kind. It's built only
-- when used: most calls don't need it.
local function failed_queue(head, tail, wake_channel)
  return later(function(lane)
    lane.schedule, lane.contents, lane.idle = head .. 'schedule' .. tail, head .. 'contents' .. tail, head .. 'idle' .. tail
    lane.workers, lane.keyed, lane.wake = head .. 'workers' .. tail, head .. 'keyed' .. tail .. ':', wake_channel
  end)
end

local failures = later(function(failures)
  -- If more than keep entries have a score of at least low, drops the oldest. One call is
  -- limited in elements and, except for the first, in bytes. Tasks that were set aside have
  -- ASIDE added to their time. Returns how many it dropped.
  function failures.trim(lane, low, keep)
    local DROP_AT_MOST = 128 -- as many as a step may add
    local excess = math.min(redis.call('ZCOUNT', lane.schedule, low, '+inf') - keep, DROP_AT_MOST)
    if excess <= 0 then
      return 0
    end
    local function oldest(from, to)
      return redis.call('ZRANGEBYSCORE', lane.schedule, from, to, 'WITHSCORES', 'LIMIT', 0, excess)
    end
    local planned, aside = oldest(low, '(' .. ASIDE), oldest(ASIDE, '+inf')
    local next_planned, next_aside, dropped, bytes = 1, 1, 0, 0
    while dropped < excess and bytes < BYTES do
      local entry
      if planned[next_planned] and not (aside[next_aside]
        and tonumber(aside[next_aside + 1]) - ASIDE < tonumber(planned[next_planned + 1])) then
        entry, next_planned = planned[next_planned], next_planned + 2
      else
        entry, next_aside = aside[next_aside], next_aside + 2
      end
      bytes = bytes + #(unwait(lane, entry) or '')
      dropped = dropped + 1
    end
    return dropped
  end

  -- Reports whether the failed queue's keys have the right types, so that it can take tasks.
  function failures.sound(failed)
    return type(redis.pcall('ZCARD', failed.schedule)) == 'number'
      and type(redis.pcall('ZCARD', failed.contents)) == 'number'
  end

  -- Adds a task to the failed queue. For an occurrence of a schedule, from includes its time,
  -- so that a requeue doesn't find its key in use.
  function failures.add(failed, worker, id, task)
    local entry, from = 'k:' .. id, has_name(task.entry) and task.entry or ''
    if task.turn then
      from = from .. '@' .. task.turn
    end
    await(failed, entry, task.payload, now, 0, 0, task.card)
    redis.call('HSET', failed.keyed .. entry, 'kind', task.kind, 'reason', task.reason, 'tries', task.retries,
      'deaths', task.crashes, 'worker', worker, 'at', now, 'from', from)
    if (task.due or 0) >= 1000000000000 then -- a lower one is the token of a returned task
      redis.call('HSET', failed.keyed .. entry, 'planned', task.due)
    end
    plan(failed, entry, now)
  end

  -- Trims the failed queue. Every script that adds tasks to it ends with this, and passes how many
  -- to keep.
  function failures.keep(failed, keep)
    if keep > 0 and redis.pcall('ZCOUNT', failed.workers, now, '+inf') == 0 then -- no worker serves it
      return failures.trim(failed, -math.huge, keep)
    end
    return 0
  end
end)
