-- fail: fence a worker, whether its lease has lapsed or not, and return its
-- tasks to the front. To be repeated until nothing is left.
--
-- ARGV[6] worker  id
-- ARGV[7] begin   0: only go on with what has begun, since it may be a member again
-- Uses lib_queue, lib_wake, lib_entry, lib_place, lib_settle, lib_return.
--
-- Returns {known, returned, handled, left}: handled are those returned and those
-- that had been canceled; known is 0 when the worker does not serve
-- the queue and nothing of it is being returned.
local worker = ARGV[6]
if broken then
  return broken
end
first_write()
local mark = tonumber(redis.call('ZSCORE', q.suspects, worker) or 1) --! above constant
if ARGV[7] == '1' and redis.call('ZSCORE', q.workers, worker) then
  fence({ worker }, 0)
elseif mark > 0 then
  return { 0, 0, 0, 0 }
end
local returned, handled, left = take_back({ worker })
keep_offset()
trim_log()
alert(q, returned)
return { 1, returned, handled, left }
