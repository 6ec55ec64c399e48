-- cancel_key: remove what waits under a key and have what runs of it stopped.
--
-- ARGV[6] entry
-- Uses lib_queue, lib_wake, lib_entry, lib_place, lib_settle, lib_log.
--
-- Returns {removed, token, stopped, finished}; the token is 0 when nothing runs, otherwise
-- how many were stopped and have finished for cancels of the key before.
local entry = ARGV[6]
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
local process, holder = unpack(redis.call('HMGET', q.keyed .. entry, 'process', 'holder'))
redis.call('HLEN', q.cancel .. entry) -- of another type: fail before anything changes
redis.call('ZCARD', q.workers)
redis.call('ZCARD', q.holders)
if broken then
  return broken
end

first_write() --! follows omitted
local removed = unwait(q, entry) and 1 or 0
local stopped, finished = 0, 0
if process then
  token, stopped, finished = log_cancel(entry, token)
  local begun = holder and redis.pcall('ZSCORE', q.working .. holder, process)
  if token > 0 and type(begun) == 'string' then
    redis.pcall('ZADD', q.stopping, 0, stopping_as(entry, tonumber(begun), process)) --! guard key-stops omitted
    redis.pcall('PUBLISH', q.wake .. holder, 0)
  end
else
  token = 0
end
return { removed, token, stopped, finished }
