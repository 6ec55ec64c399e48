-- lib_settle: how a process ends, whoever ends it.
--
-- Content locks follow their payload through the list by position: the front
-- stands at offset, the element behind it at offset + 1, and so on. Taking the
-- front adds one to offset, giving back to the front takes one off, so a
-- position needs no search. While no lock exists, there is no offset and
-- nothing of this is done.

-- A payload was taken from the front into a process, while there are locks.
local function lock_taken(payload, id)
  local digest = redis.sha1hex(payload)
  local position = tonumber((string.match(redis.call('HGET', q.unique, digest) or '', '^w:(.+)')))
  if position and position <= offset then
    redis.call('HSET', q.unique, digest, 'p:' .. id)
  end
  offset = offset + 1
end

-- The lock at one place goes to another, or goes.
local function lock_moved(payload, from, to)
  if offset then
    local digest = redis.sha1hex(payload)
    if redis.call('HGET', q.unique, digest) == from then
      if to then
        redis.call('HSET', q.unique, digest, to)
      else
        redis.call('HDEL', q.unique, digest)
      end
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

-- The entry that a process runs, if it runs one, with its retries and crashes;
-- false when it cannot be read, and then nothing may happen to the process.
local function entry_of(id)
  local entry = keyed and redis.call('HGET', q.entries, id)
  if not entry then
    return nil, 0, 0
  end
  local runs = redis.pcall('HMGET', q.keyed .. entry, 'process', 'tried', 'died')
  if runs.err then
    return false
  end
  if runs[1] and runs[1] ~= id then
    redis.call('HDEL', q.entries, id) -- Redis had lost the entry, and it runs again
    return nil, 0, 0
  end
  return entry, number(runs[2]), number(runs[3])
end

-- How many workers died holding what is not under a key.
local function crashes_of(payload)
  return counting and tonumber(redis.call('HGET', q.ledger, redis.sha1hex(payload))) or 0
end

local function forget_crashes(payload)
  if counting then
    redis.call('HDEL', q.ledger, redis.sha1hex(payload))
  end
end

-- Counts the end of a process that a cancel of its payload or its key covers;
-- false if none does.
local function count_canceled(payload, entry, token, field)
  if not canceling then
    return false
  end
  local covered = false
  for _, name in ipairs({ redis.sha1hex(payload), is_key(entry) and entry or nil }) do
    local canceled = tonumber(redis.call('ZSCORE', q.canceled, name))
    if canceled and token <= canceled then
      redis.pcall('HINCRBY', q.cancel .. name, field, 1) -- the count is only told
      covered = true
    end
  end
  return covered
end

-- A worker has nothing left of what a cancel covers. The last one to say so
-- ends the cancel; its record stays a minute for those who wait for it.
local function acknowledge(name, worker)
  local record = q.cancel .. name
  if redis.pcall('HDEL', record, 'w:' .. worker) == 1 and redis.call('HLEN', record) == 3 then
    redis.call('ZREM', q.canceled, name)
    redis.call('PEXPIRE', record, 60000)
  end
end

-- Takes the payload out of a process: false when Redis has lost it, nil when its
-- key is of another type, and then nothing may happen to the process.
local function pop(id)
  local payload = redis.pcall('RPOP', q.process .. id)
  if type(payload) == 'table' then
    return nil
  end
  return payload
end

-- Takes out of a process what it runs: the payload as pop does, the entry, its
-- retries and its crashes.
local function take_out(id)
  local entry, tried, crashes = entry_of(id)
  if entry == false then
    return nil
  end
  return pop(id), entry, tried, crashes
end

-- What is left of a process without its payload ends for good.
local function remove(working, id, payload, entry)
  redis.call('ZREM', working, id)
  if offset and payload then
    lock_moved(payload, 'p:' .. id, nil)
  end
  if entry then
    entry_ended(entry, id)
  end
end

-- The process ends for good: it has done its work, or is dropped. Returns its
-- payload, or nil when nothing can happen.
local function finish(working, id, token, field)
  local payload, entry = take_out(id)
  if payload == nil then
    return nil
  end
  if payload and canceling then
    count_canceled(payload, entry, token, field)
  end
  if payload and counting and not is_key(entry) then
    forget_crashes(payload)
  end
  if offset or entry then
    remove(working, id, payload, entry)
  else
    redis.call('ZREM', working, id)
  end
  return payload or ''
end

-- The process goes back to the front (true), or ends if a cancel covers it
-- (false). When a key is of another type, nothing happens (nil). If its worker
-- died (1), that is counted.
local function give_back(working, id, token, died, later)
  local entry, tried, crashes = entry_of(id)
  if entry == false then
    return nil
  end
  local function untrack()
    if later then
      later[#later + 1] = id
    else
      redis.call('ZREM', working, id)
    end
  end
  local payload
  if entry or canceling then
    payload = redis.pcall('LINDEX', q.process .. id, 0)
    if type(payload) == 'table' then
      return nil
    end
    if not payload then
      remove(working, id, nil, entry) -- Redis has lost it
      return false
    end
    if count_canceled(payload, entry, token, 'stopped') then
      redis.call('DEL', q.process .. id)
      remove(working, id, payload, entry)
      return false
    end
  end
  if entry then
    untrack()
    redis.call('DEL', q.process .. id)
    lock_moved(payload, 'p:' .. id, 'e:' .. entry)
    -- Before all that has a time, in the order of the starts.
    entry_returned(entry, id, payload, math.min(token, now), tried, crashes + (is_key(entry) and died or 0))
  else
    -- One command that checks both keys before it changes either.
    local moved = redis.pcall('LMOVE', q.process .. id, q.waiting, 'RIGHT', 'RIGHT')
    if type(moved) == 'table' then
      return nil
    end
    untrack()
    if not moved then
      return false -- Redis has lost it
    end
    payload = moved
    if offset then
      offset = offset - 1
      lock_moved(payload, 'p:' .. id, 'w:' .. offset)
    end
  end
  if died > 0 and not is_key(entry) then
    redis.call('HSET', q.ledger, redis.sha1hex(payload), crashes_of(payload) + died)
    counting = true
  end
  return true
end

-- The process is to be tried again in delay ms (true); or false and nil as in
-- give_back.
local function put_off(working, id, token, delay)
  local payload, entry, tried, crashes = take_out(id)
  if payload == nil then
    return nil
  end
  if not payload or count_canceled(payload, entry, token, 'stopped') then
    remove(working, id, payload, entry)
    return false
  end
  redis.call('ZREM', working, id)
  lock_moved(payload, 'p:' .. id, 'e:' .. (entry or 'r:' .. id))
  if entry then
    entry_returned(entry, id, payload, now + delay, tried + 1, crashes)
  else
    await(q, 'r:' .. id, payload, now + delay, 1, 0)
    plan(q, 'r:' .. id, now + delay)
  end
  return true
end
