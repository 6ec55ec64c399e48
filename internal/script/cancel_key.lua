-- cancel_key: remove what waits under a key and have what runs of it stopped.
--
-- ARGV[6] entry
-- Uses lib_queue, lib_wake, lib_entry, lib_log.
--
-- Returns {removed, token}; the token is 0 when nothing runs.
local entry = ARGV[6]
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
local process = redis.call('HGET', q.keyed .. entry, 'process')
redis.call('HLEN', q.cancel .. entry) -- of another type: fail before anything changes
if broken then
  return broken
end
local workers = {}
for _, worker in ipairs(process and holders() or {}) do
  if redis.call('ZSCORE', q.working .. worker, process) then
    workers[1] = worker
  end
end

first_write()
local removed = unwait(q, entry) and 1 or 0
if #workers > 0 then
  token = log_cancel(entry, token, workers)
  redis.pcall('PUBLISH', q.wake .. workers[1], 0)
else
  token = 0
end
return { removed, token }
