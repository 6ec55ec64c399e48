-- lib_log: the cancel log. A name is the digest of a payload, or the entry of a
-- key. What was started at or before the token of its cancel is to stop.

-- Those who hold anything: members, and those being returned.
local function holders()
  local found = {}
  for _, members in ipairs({
    redis.call('ZRANGE', q.workers, 0, -1),
    redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0),
  }) do
    for _, worker in ipairs(members) do
      if redis.call('EXISTS', q.working .. worker) == 1 then
        found[#found + 1] = worker
      end
    end
  end
  return found
end

-- Put a cancel on record. Its token, or 0 when nobody has to acknowledge it.
local function log_cancel(name, token, workers)
  local record = q.cancel .. name
  local fields = redis.call('HLEN', record)
  -- Members have been told of all up to the last token, so this one gets the next. Where
  -- nobody is the last will do, and stays: a join takes a higher one for somebody who went.
  if redis.call('EXISTS', q.workers) == 1 then
    token = token + 1
    redis.call('SET', q.token, token)
  else
    token = math.max(token, 1)
  end
  if #workers == 0 then
    -- On record for as long as the message may be under way, so that who hears
    -- it spares what is started from now on.
    if fields <= 3 then -- of a cancel of the same that is over, or none
      redis.call('HSET', record, 'token', token, 'stopped', 0, 'finished', 0)
      redis.call('PEXPIRE', record, 10000)
    end
    return 0
  end
  if fields == 3 then
    redis.call('DEL', record) -- of a cancel of the same that is over
  end
  redis.call('ZADD', q.canceled, token, name)
  redis.call('HSETNX', record, 'stopped', 0)
  redis.call('HSETNX', record, 'finished', 0)
  redis.call('HSET', record, 'token', token)
  for _, worker in ipairs(workers) do
    redis.call('HSET', record, 'w:' .. worker, '')
  end
  return token
end
