-- cancel: remove a payload's waiting copies and have the running ones stopped.
-- The cost is that of the removal (linear in the list) and a look at each
-- worker; it does not grow with what they run.
--
-- ARGV[5] channel  told the payload
-- ARGV[6] payload
-- Uses lib_queue, lib_settle.
--
-- Returns {removed, token}; the token is 0 when no worker holds anything.
local channel, payload = ARGV[5], ARGV[6]
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
local digest = redis.sha1hex(payload)
local record = q.cancel .. digest
local earlier = redis.call('HLEN', record)

-- Who holds anything may hold a copy: members, and those being returned.
local holders = {}
for _, members in ipairs({
  redis.call('ZRANGE', q.workers, 0, -1),
  redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0),
}) do
  for _, worker in ipairs(members) do
    if redis.call('EXISTS', q.working .. worker) == 1 then
      holders[#holders + 1] = worker
    end
  end
end

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
if #gone > 0 then
  local locks = redis.call('HGETALL', q.unique)
  for i = 1, #locks, 2 do
    local position = tonumber(string.match(locks[i + 1], '^w:(.+)'))
    if position and locks[i] == digest then
      redis.call('HDEL', q.unique, digest)
    elseif position then
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
keep_offset()

if #holders == 0 then
  -- On record for as long as the message may be under way, so that who hears it
  -- spares what is started from now on.
  token = token + 1
  redis.call('SET', q.token, token)
  if earlier <= 3 then
    redis.call('DEL', record)
    redis.call('HSET', record, 'token', token, 'stopped', 0, 'finished', 0)
    redis.call('PEXPIRE', record, 10000)
  end
  token = 0
else
  token = token + 1
  if earlier == 3 then
    redis.call('DEL', record) -- of a cancel of the same payload that is over
  end
  redis.call('SET', q.token, token)
  redis.call('ZADD', q.canceled, token, digest)
  redis.call('PERSIST', record)
  redis.call('HSETNX', record, 'stopped', 0)
  redis.call('HSETNX', record, 'finished', 0)
  redis.call('HSET', record, 'token', token)
  for _, worker in ipairs(holders) do
    redis.call('HSET', record, 'w:' .. worker, '')
  end
end
redis.pcall('PUBLISH', channel, payload)
return { removed, token }
