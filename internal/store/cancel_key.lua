-- cancel_key: remove the task waiting under a key, and stop the running one.
--
-- ARGV[6] entry
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added, lib_recur, lib_settle, lib_log.
--
-- Returns {removed, token, stopped, finished}. The token is 0 if nothing runs. Otherwise
-- stopped and finished count the tasks that earlier cancels of the key have stopped, and
-- those that finished anyway.
local entry = ARGV[6]
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
local process, holder, turn = unpack(redis.call('HMGET', q.keyed .. entry, 'process', 'holder', 'turn'))
if not process then
  process, holder = added.runs(entry)
end
redis.call('HLEN', q.cancel .. entry) -- if a key has the wrong type, fail before anything changes
redis.call('ZCARD', q.workers)
redis.call('ZCARD', q.holders)
if broken then
  return broken
end

first_write()
local removed, card = 0, nil
if not (process and turn) then -- otherwise the waiting task is the next occurrence
  removed, card = courses.take_away(entry, 'canceled')
  removed = removed and 1 or 0
  cards.ended(entry, card, 'canceled', '', '')
end
local stopped, finished = 0, 0
if process then
  token, stopped, finished = log_cancel(entry, token)
  local begun = holder and redis.pcall('ZSCORE', q.working .. holder, process)
  if token > 0 and type(begun) == 'string' then
    redis.pcall('ZADD', q.stopping, 0, stopping_as(entry, tonumber(begun), process))
    redis.pcall('PUBLISH', q.wake .. holder, 0)
  end
else
  token = 0
end
keep_drift()
return { removed, token, stopped, finished }
