-- add: add named tasks, all or none. A task with a known nonce is skipped.
--
-- ARGV[6] once  key prefix of a nonce
-- then the tasks, one to 1,000. Each: name, at, rule, keep, counts, nonce, window, record.
--         at: ms; 0 is now. window: for how many ms the nonce is known; a nonce "" is none
--         rule: which time holds if a task waits under the name: always the new one, never, later, earlier;
--         unique: the call fails if there is one, or one runs
--         keep, counts: 1: the one that waits keeps its record and counts, or only these
--         record: as in lib_record, enqueued at 0
-- Uses lib_queue.
--
-- Returns {names, skipped, alone}: the names, for a skipped task the one that the first call gave; the numbers of those
-- that were skipped; and 1 if nothing else waits and nobody serves the queue.
-- Fails with DUPLICATE, with TOOLARGE if the records that wait have more than 4 MiB, and with INVALID.
local once = ARGV[6]
local FIRST, MOST = 7, 1000

if #ARGV - FIRST + 1 > 8 * MOST then
  return redis.error_reply('TOOLARGE a call has at most ' .. MOST .. ' tasks')
end
local broken = read_state('place', 'claimed')
if broken then
  return broken
end
check_types('tasks', 'ready', 'schedule')

local names, skipped, tasks = {}, {}, {}
local seen_names, seen_nonces, bytes, found = {}, {}, 0, false
for i = FIRST, #ARGV, 8 do
  local at, name, nonce = tonumber(ARGV[i + 1]), ARGV[i], ARGV[i + 5]
  local task = {
    name = name, at = at and at > now and at or 0, rule = ARGV[i + 2], nonce = nonce, window = ARGV[i + 6],
    keep = ARGV[i + 3] == '1', counts = ARGV[i + 3] == '1' or ARGV[i + 4] == '1', record = ARGV[i + 7],
  }
  if seen_names[name] or seen_nonces[nonce] then
    return redis.error_reply('INVALID the same name or nonce twice in a call')
  elseif not string.find(task.record or '', '^0:%d+:%d+:%d+:0:%d+:') then
    return redis.error_reply('INVALID a record has the form "0:due:expires:result:0:size:"')
  end
  seen_names[name], seen_nonces[nonce] = true, nonce ~= ''
  local known = nonce ~= '' and redis.call('GET', once .. nonce)
  names[#names + 1] = known or name
  if known then
    skipped[#skipped + 1] = #names
  else
    tasks[#tasks + 1] = task
    task.size = redis.call('HSTRLEN', q.tasks, name) -- 0: there's no task
    if task.size > 0 then
      if task.rule == 'unique' then
        return redis.error_reply('DUPLICATE an equal unique task is waiting or running')
      end
      found, bytes = true, bytes + task.size + redis.call('HSTRLEN', q.next, name)
    end
  end
end
if #tasks > 1 and bytes > 4 * MIB then
  return redis.error_reply('TOOLARGE the tasks that wait under these names have more than 4 MiB in all')
end
if #tasks == 0 then
  return { names, skipped, 0 }
end
local alone = redis.call('EXISTS', q.queues, q.tasks, q.workers) == 0
local place -- the last that this call has used
local fresh = 0 -- how many tasks there are that weren't there before

-- Has a task start at its time, or at the next of the places of this call.
local function put(name, at)
  place = place + 1
  if at == 0 then
    make_ready(name, place)
  else
    plan(name, at)
  end
end

-- Most names are new. This is for the others.
local change, put_behind
if found then
-- Uses lib_record, lib_merge.
  check_types('next', 'runs', 'risky')
  for _, task in ipairs(tasks) do
    task.runs = task.size > 0 and read_run(redis.call('HGET', q.runs, task.name)).attempt ~= ''
  end

  local function record_of(name)
    return read_record(redis.call('HGET', q.tasks, name))
  end

  -- Changes the task that waits under a name.
  function change(task)
    local name, planned = task.name, redis.call('ZSCORE', q.schedule, task.name)
    local at = tonumber(planned) or 0
    local wanted = time_of_both(at, task)
    if not task.keep then
      local old = record_of(name)
      if old.occurrence > 0 and wanted == at then -- it stays the occurrence of this time
        local new = read_record(task.record)
        new.due, new.occurrence = old.due, old.occurrence
        task.record = write_record(new)
      end
      replace(name, old, task.record)
    end
    local risky = redis.call('ZSCORE', q.risky, name)
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

  -- Puts a task behind the one that runs under its name, in place of what waits there.
  function put_behind(task)
    local behind = read_next(task.name)
    if not behind then
      fresh = fresh + 1
      return write_next(task.name, task)
    end
    task.at = time_of_both(behind.at, task)
    task.counts = task.counts and behind.counts
    if task.keep then
      task.keep, task.record = behind.keep, behind.record
    elseif record_of(task.name).result == 0 and read_record(task.record).result == 0 then
      -- Otherwise those who wait get the result of the one that runs, or of the new one.
      store_result(task.name, read_record(behind.record).result, 'replaced', '', '')
    end
    write_next(task.name, task)
  end
end

-- New tasks, most of all, are written together.
local records, ready = {}, {}
local function put_new(task)
  fresh = fresh + 1
  records[#records + 1], records[#records + 2] = task.name, task.record
  if task.at == 0 then
    place, startable = place + 1, startable + 1
    ready[#ready + 1], ready[#ready + 2] = string.format('%d', place), task.name
  else
    put(task.name, task.at)
  end
end

place = redis.call('HINCRBY', q.state, 'place', #tasks) - #tasks
local added = string.format('%.0f', now)
for _, task in ipairs(tasks) do
  task.record = added .. string.sub(task.record, 2)
  if task.runs then
    put_behind(task)
  elseif task.size > 0 then
    change(task)
  else
    put_new(task)
  end
  if task.nonce ~= '' then
    redis.call('SET', once .. task.nonce, task.name, 'PX', task.window)
  end
end
if #records > 0 then
  redis.call('HSET', q.tasks, unpack(records))
end
if #ready > 0 then
  redis.call('ZADD', q.ready, unpack(ready))
end

tell()
if fresh > 0 then
  redis.pcall('PUBLISH', q.channel .. 'enqueue', fresh)
end
return { names, skipped, alone and 1 or 0 }
