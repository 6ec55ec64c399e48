-- leave: end a worker's membership. All tasks that it holds return to the front.
-- Repeat the call until nothing is left.
--
-- ARGV[6] worker  id
-- ARGV[7] round   the last; if a later one has been answered, this call is too late
-- ARGV[8] asked   the token that the worker's join named
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_settle, lib_return, lib_ages.
--
-- Returns {returned, left}. After this call, copies of that join have no effect.
-- Fails with EVICTED if the worker isn't a member, and was or may have been evicted.
local worker = ARGV[6]
if broken then
  return broken
end
if (tonumber(redis.call('HGET', q.rounds, worker)) or 0) > tonumber(ARGV[7]) then
  return { 0, 0 }
end
first_write()
local mark = tonumber(redis.call('ZSCORE', q.suspects, worker) or 1)
if redis.call('ZSCORE', q.workers, worker) then
  returns.fence({ worker }, -1)
elseif mark >= 0 then -- otherwise continue what an earlier call began
  -- A worker with mark 0 was evicted, and other peers return its tasks. If this call
  -- succeeded, the worker would join again under the same id.
  if mark == 0 or returns.last_fence() > tonumber(ARGV[8]) then
    return redis.error_reply('EVICTED the worker is not a member of the queue')
  end
  returns.end_joins()
  keep_drift()
  return { 0, 0 }
end
local returned, _, left = returns.take_back({ worker })
trim_log()
end_ages()
alert(q, returned)
return { returned, left }
