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
-- Fails with DUPLICATE, with TOOLARGE for more than 1,000 tasks, or if several have more than 4 MiB of records that wait; with INVALID.
local FIRST, MOST = 3, 1000
local args = ARGV

if #args - FIRST + 1 > 5 * MOST then
  return redis.error_reply('TOOLARGE a call has at most ' .. MOST .. ' tasks')
end
read_state('place', 'claimed', 'added')
check_types(q, 'tasks', 'ready', 'schedule')

-- Most names are new. found has the others; old, for their tasks in this call, where they are in found.
local names, skipped, adds, old, found = {}, {}, {}, {}, {}
local seen, bytes, tried = {}, 0, false
for i = FIRST, #args, 5 do
  local name, once, record = args[i], args[i + 3], args[i + 4]
  local window, nonce = string.match(once or '', '^([1-9]%d*):(.+)$')
  local valid = once == '' or nonce and #window <= 12 -- SET would refuse a longer one after the first write
  valid = valid and string.find(name, '^[ku]:.') and string.find(args[i + 1] or '', '^%d+$')
  if not valid or not string.find(record or '', '^0:%d+:%d+:%d+:0:%d+:') then
    return redis.error_reply('INVALID a task is "k:key", ms, "rule:keep:counts", "window:nonce", "0:due:expires:result:0:size:…"')
  elseif seen[name] or nonce and seen[':' .. nonce] then -- no name begins with a colon
    return redis.error_reply('INVALID the same name or nonce twice in a call')
  end
  seen[name] = true
  if nonce then
    seen[':' .. nonce] = true
  end
  -- A SET with XX of an unknown nonce sets nothing, but fails before the first write if SET is denied.
  local known = nonce and (redis.call('GET', q.once .. nonce) or not tried and redis.call('SET', q.once .. nonce, '', 'XX'))
  tried = tried or nonce and not known
  names[#names + 1] = known or name
  if known then
    skipped[#skipped + 1] = #names
  else
    adds[#adds + 1] = i
    local there = size.tasks > 0 and redis.call('HSTRLEN', q.tasks, name) or 0
    if there > 0 then
      if string.sub(args[i + 2], 1, 7) == 'unique:' then
        return redis.error_reply('DUPLICATE an equal unique task is waiting or running')
      elseif not string.find(args[i + 2], '^%a+:[01]:[01]$') then
        return redis.error_reply('INVALID how to add a task is "rule:keep:counts"')
      end
      found[#found + 1], old[i] = name, #found + 1
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
local alone = size.tasks == 0 and redis.call('EXISTS', q.queues, q.workers) == 0
local added = string.format('%.0f', now)
local place, fresh -- the last place that this call has used; how many tasks there are that weren't there before

-- What this call writes, all at the end.
local records, behind, ready, planned, moved, forgotten = {}, {}, {}, {}, {}, {}
local function write(command, key, list)
  if #list > 0 then
    redis.call(command, key, unpack(list))
  end
end

-- Has a task start at its time, or at a place: of those of this call, the next.
local function put(name, at, old_place)
  place = place + 1
  if at > now then
    planned[#planned + 1], planned[#planned + 2] = string.format('%.0f', at), name
    earliest = math.min(earliest, at)
  else
    startable = startable + 1
    ready[#ready + 1], ready[#ready + 2] = old_place or string.format('%d', place), name
  end
end

local change
if #found > 0 then
-- Uses lib_record, lib_merge.
  check_types(q, 'next', 'runs', 'risky')
  local texts, nexts = redis.call('HMGET', q.tasks, unpack(found)), redis.call('HMGET', q.next, unpack(found))
  local runs, in_ready = redis.call('HMGET', q.runs, unpack(found)), redis.call('ZMSCORE', q.ready, unpack(found))
  local in_schedule, in_risky = redis.call('ZMSCORE', q.schedule, unpack(found)), redis.call('ZMSCORE', q.risky, unpack(found))

  -- Puts a task behind the one that runs under its name, in place of what waits there.
  local function put_behind(name, task, n)
    local before = read_added(nexts[n] or '')
    if not before then
      fresh = fresh + 1
      redis.call('HINCRBY', q.state, 'added', 1)
    else
      task.at = time_of_both(before.at, task)
      task.counts = task.counts and before.counts
      if task.keep then
        task.keep, task.record = before.keep, before.record
      elseif kept_of(texts[n]) == 0 and kept_of(task.record) == 0 then
        -- Otherwise those who wait get the result of the one that runs, or of the new one.
        store_result(name, kept_of(before.record), 'replaced', '', '')
      end
    end
    local head = string.format('%.0f:%s:%d:%d:', task.at, task.rule, task.keep and 1 or 0, task.counts and 1 or 0)
    behind[#behind + 1], behind[#behind + 2] = name, head .. task.record
  end

  -- Changes the task that waits under the name of a task of this call.
  function change(i)
    local name, n = args[i], old[i]
    local task = read_added(args[i + 1] .. ':' .. args[i + 2] .. ':')
    task.record = added .. string.sub(args[i + 4], 2)
    task.at, task.counts = task.at > now and task.at or 0, task.keep or task.counts
    if read_run(runs[n]).attempt ~= '' then
      return put_behind(name, task, n)
    end
    local at = tonumber(in_schedule[n]) or 0
    local wanted = time_of_both(at, task)
    if not task.keep then
      if string.find(texts[n], '^%d+:[1-9]%d*:%d+:%d+:1:%d+:') and wanted == at then -- it stays the occurrence of this time
        local before, new = read_record(texts[n]), read_record(task.record)
        new.due, new.occurrence = before.due, before.occurrence
        task.record = write_record(new)
      end
      if kept_of(task.record) == 0 then -- otherwise whoever waits for the old one's waits for this
        store_result(name, kept_of(texts[n]), 'replaced', '', '')
      end
      records[#records + 1], records[#records + 2] = name, task.record
    end
    if not task.counts then
      forgotten[#forgotten + 1] = name
    end
    local is_lost = not (in_schedule[n] or in_risky[n] or in_ready[n]) -- another program's mistake
    if wanted ~= at or in_risky[n] and not task.counts or is_lost then
      moved[#moved + 1] = name
      put(name, wanted, wanted == at and in_risky[n])
    end
  end
end

place, fresh = state.place, #adds - #found
redis.call('HSET', q.state, 'place', string.format('%.0f', place + #adds), 'added', string.format('%.0f', state.added + fresh))
for _, i in ipairs(adds) do
  local name, once = args[i], args[i + 3]
  if old[i] then
    change(i)
  else
    records[#records + 1], records[#records + 2] = name, added .. string.sub(args[i + 4], 2)
    put(name, tonumber(args[i + 1]))
  end
  if once ~= '' then
    local window, nonce = string.match(once, '^(%d+):(.*)$')
    redis.call('SET', q.once .. nonce, name, 'PX', window)
  end
end
write('HSET', q.tasks, records)
write('HSET', q.next, behind)
write('HDEL', q.runs, forgotten)
write('ZREM', q.ready, moved)
write('ZREM', q.schedule, moved)
write('ZREM', q.risky, moved)
write('ZADD', q.ready, ready)
write('ZADD', q.schedule, planned)

if size.ready <= 64 or earliest < math.huge then -- otherwise all who were idle have been woken
  tell()
end
if fresh > 0 then
  redis.pcall('PUBLISH', q.channel .. 'enqueue', fresh)
end
return { names, skipped, alone and 1 or 0 }
