-- add: add named tasks, all or none. A task with a known nonce is skipped.
--
-- then the tasks, one to 1,000. Each: name, at, how, once, record.
--         at: ms; 0 is now. record: as in lib_record, enqueued at 0
--         how: "rule:keep:counts", for a name under which a task waits. The rule says which time holds: always the new
--         one, never, later, earlier; unique: the call fails if there is one, or one runs. If keep is 1, the one that
--         waits keeps its record and counts; if counts is 1, only its counts
--         once: "window:nonce", for how many ms the nonce is known; or "" without one
-- Uses lib_queue.
--
-- Returns {names, skipped, alone}: the names, for a skipped task the one that the first call gave; the numbers of those
-- that were skipped; and 1 if nothing else waits and nobody serves the queue.
-- Fails with DUPLICATE, with TOOLARGE if the records that wait have more than 4 MiB, and with INVALID.
local FIRST, MOST = 3, 1000
local args = ARGV

if #args - FIRST + 1 > 5 * MOST then
  return redis.error_reply('TOOLARGE a call has at most ' .. MOST .. ' tasks')
end
read_state('place', 'claimed')
check_types(q, 'tasks', 'ready')

-- Most names are new. old has the tasks of the others.
local names, skipped, adds, old = {}, {}, {}, {}
local seen, bytes, timed, found = {}, 0, false, false
for i = FIRST, #args, 5 do
  local name, once, record = args[i], args[i + 3], args[i + 4]
  local nonce = once ~= '' and string.match(once or '', '^[1-9]%d*:(.+)$') -- nil: it has another form
  if nonce == nil or not string.find(record or '', '^0:%d+:%d+:%d+:0:%d+:') or not tonumber(args[i + 1]) then
    return redis.error_reply('INVALID a task is name, ms, "rule:keep:counts", "window:nonce", "0:due:expires:result:0:size:…"')
  elseif seen[name] or nonce and seen[':' .. nonce] then -- no name begins with a colon
    return redis.error_reply('INVALID the same name or nonce twice in a call')
  end
  seen[name] = true
  if nonce then
    seen[':' .. nonce] = true
  end
  -- A SET with XX of an unknown nonce sets nothing, but fails before the first write if SET is denied.
  local known = nonce and (redis.call('GET', q.once .. nonce) or redis.call('SET', q.once .. nonce, '', 'XX'))
  names[#names + 1] = known or name
  if known then
    skipped[#skipped + 1] = #names
  else
    adds[#adds + 1] = i
    timed = timed or args[i + 1] ~= '0'
    local there = size.tasks > 0 and redis.call('HSTRLEN', q.tasks, name) or 0
    if there > 0 then
      if string.sub(args[i + 2], 1, 7) == 'unique:' then
        return redis.error_reply('DUPLICATE an equal unique task is waiting or running')
      end
      found, old[i] = true, args[i + 2]
      bytes = bytes + there + redis.call('HSTRLEN', q.next, name)
    end
  end
end
if #adds > 1 and bytes > 4 * MIB then
  return redis.error_reply('TOOLARGE the tasks that wait under these names have more than 4 MiB in all')
end
if #adds == 0 then
  return { names, skipped, 0 }
end
if timed or found then
  check_types(q, 'schedule')
end
local alone = size.tasks == 0 and redis.call('EXISTS', q.queues, q.workers) == 0
local place -- the last that this call has used
local added = string.format('%.0f', now)
local fresh = 0 -- how many tasks there are that weren't there before

-- Has a task start at its time, or at the next of the places of this call. The caller writes what's ready.
local ready = {}
local function put(name, at)
  place = place + 1
  if at > now then
    return plan(name, at)
  end
  startable = startable + 1
  ready[#ready + 1], ready[#ready + 2] = string.format('%d', place), name
end

local change
if found then
-- Uses lib_record, lib_merge.
  check_types(q, 'next', 'runs', 'risky')
  for i, how in pairs(old) do
    old[i] = read_added(args[i + 1] .. ':' .. how .. ':' .. added .. string.sub(args[i + 4], 2))
    if not old[i] then
      return redis.error_reply('INVALID how to add a task is "rule:keep:counts"')
    end
    old[i].runs = read_run(redis.call('HGET', q.runs, args[i])).attempt ~= ''
  end

  local function write_next(name, task)
    local head = string.format('%.0f:%s:%d:%d:', task.at, task.rule, task.keep and 1 or 0, task.counts and 1 or 0)
    redis.call('HSET', q.next, name, head .. task.record)
  end

  local function record_of(name)
    return read_record(redis.call('HGET', q.tasks, name))
  end

  -- Puts a task behind the one that runs under its name, in place of what waits there.
  local function put_behind(name, task)
    local behind = read_next(name)
    if not behind then
      fresh = fresh + 1
      return write_next(name, task)
    end
    task.at = time_of_both(behind.at, task)
    task.counts = task.counts and behind.counts
    if task.keep then
      task.keep, task.record = behind.keep, behind.record
    elseif record_of(name).result == 0 and read_record(task.record).result == 0 then
      -- Otherwise those who wait get the result of the one that runs, or of the new one.
      store_result(name, read_record(behind.record).result, 'replaced', '', '')
    end
    write_next(name, task)
  end

  -- Changes the task that waits under a name.
  function change(name, task)
    task.at, task.counts = task.at > now and task.at or 0, task.keep or task.counts
    if task.runs then
      return put_behind(name, task)
    end
    local planned, risky = redis.call('ZSCORE', q.schedule, name), redis.call('ZSCORE', q.risky, name)
    local at = tonumber(planned) or 0
    local wanted = time_of_both(at, task)
    if not task.keep then
      local before = record_of(name)
      if before.occurrence > 0 and wanted == at then -- it stays the occurrence of this time
        local new = read_record(task.record)
        new.due, new.occurrence = before.due, before.occurrence
        task.record = write_record(new)
      end
      replace(name, before, task.record)
    end
    if not task.counts then
      redis.call('HDEL', q.runs, name)
    end
    if wanted ~= at then
      redis.call('ZREM', q.ready, name)
      redis.call('ZREM', q.schedule, name)
      redis.call('ZREM', q.risky, name)
      put(name, wanted)
    elseif risky and not task.counts then
      redis.call('ZREM', q.risky, name)
      make_ready(name, risky)
    elseif not (planned or risky or redis.call('ZSCORE', q.ready, name)) then -- another program's mistake
      put(name, wanted)
    end
  end
end

-- New tasks are written together.
local records = {}
place = redis.call('HINCRBY', q.state, 'place', #adds) - #adds
for _, i in ipairs(adds) do
  local name, once = args[i], args[i + 3]
  if old[i] then
    change(name, old[i])
  else
    fresh = fresh + 1
    records[#records + 1], records[#records + 2] = name, added .. string.sub(args[i + 4], 2)
    put(name, tonumber(args[i + 1]))
  end
  if once ~= '' then
    local window, nonce = string.match(once, '^(%d+):(.*)$')
    redis.call('SET', q.once .. nonce, name, 'PX', window)
  end
end
if #records > 0 then
  redis.call('HSET', q.tasks, unpack(records))
end
if #ready > 0 then
  redis.call('ZADD', q.ready, unpack(ready))
end

if size.ready <= 64 or earliest < math.huge then -- otherwise all who were idle have been woken
  tell()
end
if fresh > 0 then
  redis.pcall('PUBLISH', q.channel .. 'enqueue', fresh)
end
return { names, skipped, alone and 1 or 0 }
