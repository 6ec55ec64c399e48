-- lib_settle: how a process ends, in every script that ends one.

-- The number of tokens that this script issues without taking a task from the list, plus the
-- tasks that it returns to the front (see lib_ages). It's 0 if only tasks from the list start and
-- finish.
q.drift = 0
local function keep_drift()
  if q.drift ~= 0 then
    redis.pcall('ZADD', q.ages, 'XX', 'INCR', q.drift, 'drift')
  end
end

-- Returns the entry that a process runs, if any, with its retries, its crashes, the digest that
-- it names and its card. Returns false if the entry can't be read: then the caller must not touch
-- the process. For an added task, the digest is the digest of its entry's name.
local function entry_of(id)
  digests.forget()
  local entry = keyed and redis.call('HGET', q.entries, id)
  if not entry then
    return nil, 0, 0
  end
  local name, of, card = cards.read(entry)
  if name then
    q.running[id] = { name = name, value = entry }
    return of, 0, 0, redis.sha1hex(of), card
  end
  local runs = redis.pcall('HMGET', q.keyed .. entry, 'process', 'tried', 'died', 'sum', 'held')
  if runs.err then
    return false
  end
  if runs[1] and runs[1] ~= id then
    redis.call('HDEL', q.entries, id) -- Redis lost the entry, which runs in another process by now
    return nil, 0, 0
  end
  local summed, digest = string.match(runs[4] or '', '^([^:]*):(.*)$')
  return entry, number(runs[2]), number(runs[3]), summed == id and digest, runs[5]
end

-- Returns how many workers died holding a payload that isn't under a key; nil if none did.
local function died_of(digest)
  return tonumber(redis.call('HGET', q.ledger, digest))
end

local function crashes_of(payload)
  return counting and died_of(digest_of(payload)) or 0
end

local function forget_crashes(payload)
  if counting then
    redis.call('HDEL', q.ledger, digest_of(payload))
  end
end

-- Returns the prefix of a name's members in stopping. All prefixes have the same length, so
-- none is a prefix of another.
local function name_of(name)
  if is_key(name) then
    return 'k' .. redis.sha1hex(name)
  end
  return 'p' .. name
end

local function stopping_as(name, token, id)
  return name_of(name) .. ':' .. string.format('%016d', token) .. ':' .. id
end

-- If a cancel of the payload or the key covers a process, counts the end of the process in the
-- cancel's record. Returns whether a cancel covers it. A cancel with a token that was never issued
-- covers nothing: it would drop tasks forever.
local function count_canceled(payload, entry, id, token, field)
  if not canceling then
    return false
  end
  local covered = false
  local names = { digest_of(payload), is_key(entry) and entry or nil }
  if digests.are_of_key(entry, payload) then
    names = { entry }
  end
  for _, name in ipairs(names) do
    local canceled = tonumber(redis.call('ZSCORE', q.canceled, name))
    if canceled and canceled > math.max(last_token() or NEVER, 1) then
      canceled = nil
    end
    if canceled and token <= canceled then
      local record = q.cancel .. name
      if redis.pcall('HEXISTS', record, 'token') == 1 then
        redis.pcall('HINCRBY', record, field, 1) -- only for reports, so errors are ignored
      end
      redis.pcall('ZREM', q.stopping, stopping_as(name, token, id))
      if is_key(name) then -- only one task of a key runs
        redis.call('ZREM', q.canceled, name)
        redis.call('PEXPIRE', record, 60000)
      end
      covered = true
    end
  end
  return covered
end

-- Removes a worker that holds nothing from holders: it has no cancels to report on.
local function holds_nothing(worker)
  redis.pcall('ZREM', q.holders, worker)
end

-- Removes cancels that have ended from the log. A cancel has ended when all holders have
-- reported which of their tasks it covers, and none of those tasks runs anymore. The cancel of a
-- key has ended when the task under the key has. Its record stays a minute for callers that wait
-- for it. Every script that ends processes calls this last. It checks one page of the log: if
-- unfinished cancels fill a page, a different one each time.
local function trim_log()
  local lowest = canceling and redis.pcall('ZRANGE', q.holders, 0, 0, 'WITHSCORES')
  if not lowest or lowest.err then
    return
  end
  local said = redis.call('ZCOUNT', q.canceled, '-inf', lowest[2] or '+inf')
  if said == 0 then
    return
  end
  local from = said > 100 and micros % (said - 99) or 0
  for _, name in ipairs(redis.call('ZRANGE', q.canceled, from, math.min(from + 100, said) - 1)) do
    local one = name_of(name)
    local runs = redis.pcall('ZRANGEBYLEX', q.stopping, '[' .. one .. ':', '(' .. one .. ';', 'LIMIT', 0, 1)
    if #runs == 0 then -- also if it can't be read
      redis.call('ZREM', q.canceled, name)
      redis.call('PEXPIRE', q.cancel .. name, 60000)
    end
  end
  if not lowest[2] then -- no worker holds anything; the other records expire
    redis.call('UNLINK', q.canceled, q.stopping)
  end
end

-- Removes and returns the payload of a process: false if Redis has lost it, nil if its key has the
-- wrong type. As after entry_of, the caller then must not touch the process.
local function pop(id)
  local payload = redis.pcall('RPOP', q.process .. id)
  if type(payload) == 'table' then
    return nil
  end
  return payload
end

-- Removes the task of a process. Returns the payload as pop does, the entry, its retries, its
-- crashes and its card.
local function take_out(id)
  local entry, tried, crashes, named, card = entry_of(id)
  if entry == false then
    return nil
  end
  local payload = pop(id)
  digests.name(payload, named)
  return payload, entry, tried, crashes, card
end

-- Ends a process whose payload has been removed.
local function remove(working, id, payload, entry, outcome)
  redis.call('ZREM', working, id)
  if entry then
    entry_ended(entry, id, outcome)
  end
end

-- Ends a process whose task is finished or dropped. Returns its payload, or nil as pop does. result
-- is the worker's argument (see step.lua, outcomes).
local function finish(working, id, token, field, result)
  local payload, entry, _, _, card = take_out(id)
  if payload == nil then
    return nil
  end
  if payload and canceling then
    count_canceled(payload, entry, id, token, field)
  end
  if payload and counting and not is_key(entry) then
    forget_crashes(payload)
  end
  if entry then
    remove(working, id, payload, entry, payload and (field == 'finished' and field or 'canceled'))
    cards.ended(entry, card, field == 'finished' and field or 'canceled', '', result)
  else
    redis.call('ZREM', working, id)
  end
  return payload or ''
end

local carried = 0 -- bytes of the payloads given back

-- Returns the task of a process to the front (true), or ends it if a cancel covers it (false). If a
-- key has the wrong type, nothing happens (nil). died is 1 if its worker died, which counts as a
-- crash.
local function give_back(working, id, token, died, later)
  local entry, tried, crashes, named, card = entry_of(id)
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
    digests.name(payload, named)
    if not payload then
      remove(working, id, nil, entry) -- Redis has lost it
      return false
    end
    if count_canceled(payload, entry, id, token, 'stopped') then
      carried = carried + #payload
      redis.call('DEL', q.process .. id)
      remove(working, id, payload, entry, 'canceled')
      cards.ended(entry, card, 'canceled', '', '')
      return false
    end
  end
  if entry then
    untrack()
    redis.call('DEL', q.process .. id)
    -- A token is lower than any time, so it's planned before all others, in the order in which the tasks started.
    entry_returned(entry, id, payload, math.min(token, now), tried, crashes + (is_key(entry) and died or 0), card)
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
    payload, q.drift = moved, q.drift + 1
  end
  if died > 0 and not is_key(entry) then
    redis.call('HSET', q.ledger, digest_of(payload), crashes_of(payload) + died)
    counting = true
  end
  carried = carried + #payload
  return true
end

-- Plans the task of a process again in delay ms, and adds failures to its retries. Returns true,
-- or false and nil as give_back does. text is the error of this attempt; if it's empty, the
-- previous error stays.
local function put_off(working, id, token, delay, text, failures)
  local payload, entry, tried, crashes, card = take_out(id)
  if payload == nil then
    return nil
  end
  if not payload or count_canceled(payload, entry, id, token, 'stopped') then
    remove(working, id, payload, entry, payload and 'canceled')
    cards.ended(entry, payload and card, 'canceled', '', '')
    return false
  end
  redis.call('ZREM', working, id)
  local counts = true
  if entry then
    counts = entry_returned(entry, id, payload, now + delay, tried + failures, crashes, card)
  else
    entry = 'r:' .. id
    await(q, entry, payload, now + delay, failures, 0)
    plan(q, entry, now + delay)
  end
  if text ~= '' and counts then
    redis.call('HSET', q.keyed .. entry, 'error', text)
  end
  return true
end
