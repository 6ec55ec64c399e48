-- leave: stop being a member. All that the worker holds goes to the front.
-- To be repeated until nothing is left.
--
-- ARGV[6] worker  id
-- ARGV[7] round   the last; when a later one has been answered, this comes too late
-- ARGV[8] asked   the token that its join named
-- Uses lib_queue, lib_wake, lib_entry, lib_place, lib_settle, lib_return.
--
-- Returns {returned, left}. From then on that join has no effect any more.
-- Fails with EVICTED when the worker is no member, and was or may have been failed.
local worker = ARGV[6]
if broken then
  return broken
end
if (tonumber(redis.call('HGET', q.rounds, worker)) or 0) > tonumber(ARGV[7]) then --! guard leave-number false
  return { 0, 0 }
end
first_write()
local mark = tonumber(redis.call('ZSCORE', q.suspects, worker) or 1) --! above constant
if redis.call('ZSCORE', q.workers, worker) then
  fence({ worker }, -1)
elseif mark >= 0 then -- else it goes on with what an earlier call began
  -- Whose mark is 0 was failed. Others go on with its return: were it told that it has
  -- left, it would join again under the same id.
  if mark == 0 or last_fence() > tonumber(ARGV[8]) then --! guard spent-ids false
    return redis.error_reply('EVICTED the worker is no member of the queue')
  end
  end_joins() --! guard leave-fences omitted
  return { 0, 0 }
end
local returned, _, left = take_back({ worker })
keep_offset()
trim_log()
alert(q, returned)
return { returned, left }
