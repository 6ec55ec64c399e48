-- cancel: remove a payload's waiting copies and have the running ones stopped.
-- The cost is that of the removal (linear in the list) and a look at each
-- worker; it does not grow with what they run.
--
-- ARGV[6] channel  told the payload
-- ARGV[7] payload
-- Uses lib_queue, lib_wake, lib_entry, lib_log.
--
-- Returns {removed, token}; the token is 0 when no worker holds anything.
local channel, payload = ARGV[6], ARGV[7]
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
if broken then
  return broken
end
local digest = redis.sha1hex(payload)
redis.call('HLEN', q.cancel .. digest) -- of another type: fail before anything changes
local entries = redis.call('ZRANGEBYLEX', q.contents, '[' .. digest .. ':', '(' .. digest .. ';')
local workers = holders()

-- What stands behind a removed copy moves up, and so do the locks on it.
local gone = {}
if offset then
  local length = redis.call('LLEN', q.waiting)
  local found = redis.call('LPOS', q.waiting, payload, 'COUNT', 0)
  for i = #found, 1, -1 do
    gone[#gone + 1] = offset + length - 1 - found[i]
  end
end
local removed = redis.call('LREM', q.waiting, 0, payload)
for _, member in ipairs(entries) do
  local entry = string.sub(member, 42)
  if redis.pcall('HGET', q.keyed .. entry, 'payload') == payload then
    unwait(q, entry)
    removed = removed + 1
  else
    redis.call('ZREM', q.contents, member) -- Redis has lost it
  end
end
redis.call('HDEL', q.ledger, digest)
if offset then
  local lock = redis.call('HGET', q.unique, digest)
  if lock and string.sub(lock, 1, 2) ~= 'p:' then
    redis.call('HDEL', q.unique, digest)
  end
end
if #gone > 0 then
  local locks = redis.call('HGETALL', q.unique)
  for i = 1, #locks, 2 do
    local position = tonumber((string.match(locks[i + 1], '^w:(.+)')))
    if position then
      local low, high = 0, #gone -- how many of gone stand before position
      while low < high do
        local middle = math.ceil((low + high) / 2)
        if gone[middle] < position then low = middle else high = middle - 1 end
      end
      if low > 0 then
        redis.call('HSET', q.unique, locks[i], 'w:' .. position - low)
      end
    end
  end
end
if offset and redis.call('HLEN', q.unique) == 1 then
  redis.call('DEL', q.unique)
end

token = log_cancel(digest, token, workers)
redis.pcall('PUBLISH', channel, payload)
return { removed, token }
