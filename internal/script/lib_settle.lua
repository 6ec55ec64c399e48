-- lib_settle: how a process ends, whoever ends it.
--
-- Content locks follow their payload through the list by position: the front
-- stands at offset, the element behind it at offset + 1, and so on. Taking the
-- front adds one to offset, giving back to the front takes one off, so a
-- position needs no search. While no lock exists, there is no offset and
-- nothing of this is done.
local offset, canceling, suspecting = nil, false, false
if redis.call('EXISTS', q.unique, q.canceled, q.suspects) > 0 then -- seldom
  offset = tonumber(redis.call('HGET', q.unique, 'offset') or nil)
  canceling = redis.call('ZCARD', q.canceled) > 0
  suspecting = redis.call('ZCARD', q.suspects) > 0
end

-- A payload was taken from the front into a process.
local function lock_taken(payload, id)
  if offset then
    local digest = redis.sha1hex(payload)
    local position = tonumber(string.match(redis.call('HGET', q.unique, digest) or '', '^w:(.+)'))
    if position and position <= offset then
      redis.call('HSET', q.unique, digest, 'p:' .. id)
    end
    offset = offset + 1
  end
end

local function lock_released(payload, id)
  if offset then
    local digest = redis.sha1hex(payload)
    if redis.call('HGET', q.unique, digest) == 'p:' .. id then
      redis.call('HDEL', q.unique, digest)
    end
  end
end

local function lock_returned(payload, id)
  if offset then
    offset = offset - 1
    local digest = redis.sha1hex(payload)
    if redis.call('HGET', q.unique, digest) == 'p:' .. id then
      redis.call('HSET', q.unique, digest, 'w:' .. offset)
    end
  end
end

-- Every script that takes or gives back ends with this.
local function keep_offset()
  if offset then
    if redis.call('HLEN', q.unique) == 1 then
      redis.call('DEL', q.unique)
    else
      redis.call('HSET', q.unique, 'offset', offset)
    end
  end
end

-- Counts the end of a process that a cancel covers; false if none does.
local function count_canceled(payload, token, field)
  if not canceling then
    return false
  end
  local digest = redis.sha1hex(payload)
  local canceled = tonumber(redis.call('ZSCORE', q.canceled, digest) or nil)
  if not canceled or token > canceled then
    return false
  end
  redis.pcall('HINCRBY', q.cancel .. digest, field, 1) -- the count is only told
  return true
end

-- A worker has nothing left of what a cancel covers. The last one to say so
-- ends the cancel; its record stays a minute for those who wait for it.
local function acknowledge(digest, worker)
  local record = q.cancel .. digest
  if redis.pcall('HDEL', record, 'w:' .. worker) == 1 and redis.call('HLEN', record) == 3 then
    redis.call('ZREM', q.canceled, digest)
    redis.call('PEXPIRE', record, 60000)
  end
end

-- The process ends for good. Returns its payload, or nil when its key is of
-- another type, and nothing happens.
local function remove(working, id, token, field)
  local payload = redis.pcall('RPOP', q.process .. id)
  if type(payload) == 'table' then
    return nil
  end
  redis.call('ZREM', working, id)
  if payload then
    count_canceled(payload, token, field)
    lock_released(payload, id)
  end
  return payload or ''
end

-- The process goes back to the front (true), or ends if a cancel covers it
-- (false). When a key is of another type, nothing happens (nil).
local function give_back(working, id, token)
  local payload
  if offset or canceling then
    payload = redis.pcall('LINDEX', q.process .. id, 0)
    if type(payload) == 'table' then
      return nil
    end
    if payload and count_canceled(payload, token, 'stopped') then
      redis.call('DEL', q.process .. id)
      redis.call('ZREM', working, id)
      lock_released(payload, id)
      return false
    end
  end
  -- One command that checks both keys before it changes either.
  local moved = redis.pcall('LMOVE', q.process .. id, q.waiting, 'RIGHT', 'RIGHT')
  if type(moved) == 'table' then
    return nil
  end
  redis.call('ZREM', working, id)
  if payload then
    lock_returned(payload, id)
  end
  return true
end
