-- leave: stop being a member. All that the worker holds goes to the front.
-- To be repeated until nothing is left.
--
-- ARGV[6] worker  id
-- ARGV[7] round   the last; when a later one has been answered, this comes too late
-- Uses lib_queue, lib_wake, lib_entry, lib_settle, lib_return.
--
-- Returns {returned, left}.
local worker = ARGV[6]
if broken then
  return broken
end
if tonumber(redis.call('HGET', q.rounds, worker) or 0) > tonumber(ARGV[7]) then
  return { 0, 0 }
end
first_write()
local mark = tonumber(redis.call('ZSCORE', q.suspects, worker) or 1)
if redis.call('ZSCORE', q.workers, worker) then
  fence(worker, -1)
elseif mark > 0 then
  return { 0, 0 }
end
local returned, _, left = take_back({ worker }, AT_ONCE)
keep_offset()
alert(q, returned)
return { returned, left }
