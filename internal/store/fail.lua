-- fail: fence a worker, whether its lease has expired or not, and return its
-- tasks to the front. Repeat the call until nothing is left.
--
-- ARGV[6] worker  id
-- ARGV[7] begin   1 on the first call; 0: only continue, since the worker may be a member again
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_settle, lib_return, lib_ages.
--
-- Returns {known, returned, handled, left}: handled counts returned tasks and
-- canceled ones; known is 0 if the worker doesn't serve
-- the queue and none of its tasks are being returned.
local worker = ARGV[6]
if broken then
  return broken
end
first_write()
local mark = tonumber(redis.call('ZSCORE', q.suspects, worker) or 1)
if ARGV[7] == '1' and redis.call('ZSCORE', q.workers, worker) then
  returns.fence({ worker }, 0)
elseif mark > 0 then
  return { 0, 0, 0, 0 }
end
local returned, handled, left = returns.take_back({ worker })
trim_log()
end_ages()
alert(q, returned)
return { 1, returned, handled, left }
