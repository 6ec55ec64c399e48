-- lib_return: return the tasks of workers that leave.
-- Uses lib_fence.

local AT_ONCE = 100 -- tasks returned by a call
local WORKERS = 500 -- whose tasks a call compares

-- Moves on to a worker's next older attempt. Returns false if there is none, or the key has the wrong type.
local function advance(head)
  local found = redis.pcall('ZREVRANGE', q.working .. head.worker, head.at, head.at, 'WITHSCORES')
  if found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then
    redis.call('ZREVRANGE', q.working .. head.worker, head.at, head.at) -- fails, so the worker stays in leaving
  end
  head.at = head.at + 1
  head.id, head.token = found[1], tonumber(found[2])
  return head.id ~= nil
end

-- Returns the newest attempts of all workers that leave, and the workers that hold nothing.
local function newest()
  local heads, found, over = {}, {}, {}
  local leaving = redis.call('ZRANGE', q.leaving, 0, WORKERS - 1, 'WITHSCORES')
  for i = 1, #leaving, 2 do
    local head = { worker = leaving[i], evicted = leaving[i + 1] == '1', at = 0 }
    if advance(head) then
      heads[#heads + 1] = head
    else
      over[#over + 1] = head.worker
    end
  end
  table.sort(heads, function(a, b) return a.token > b.token end)
  heads = { unpack(heads, 1, math.min(#heads, AT_ONCE)) } -- the others hold only older ones
  while heads[1] and #found < AT_ONCE do
    local head = table.remove(heads, 1)
    found[#found + 1] = { id = head.id, token = head.token, worker = head.worker, evicted = head.evicted }
    if advance(head) then
      local place = 1
      while heads[place] and heads[place].token > head.token do
        place = place + 1
      end
      table.insert(heads, place, head)
    end
  end
  return found, over
end

-- Counts a crash. The count is kept if that's possible.
local function count_crash(digest)
  if digest and digest ~= '' then
    redis.pcall('HINCRBY', q.crashes, digest, 1)
  end
end

-- Returns a raw task to the front of the list, or drops it. Returns 1 if it's back, how many bytes it has, and an error
-- if Redis refuses.
local function return_raw(attempt, list, payload)
  local digest = digest_of(payload)
  if is_canceled(attempt.token, digest) then
    redis.call('DEL', list)
    redis.pcall('HDEL', q.crashes, digest)
    return 0, #payload
  end
  local moved, refused = back_to_front(list)
  if moved > 0 and attempt.evicted then
    count_crash(digest)
  end
  return moved, #payload, refused
end

-- Returns a named task to ready, before those that started later, or drops it. Returns the same. It stays, with its
-- list, if a key has the wrong type.
local sound -- whether all keys of named tasks have the right types
local function return_named(attempt, list, name)
  local run = sound and read_run(redis.call('HGET', q.runs, name)) or {}
  if run.attempt ~= attempt.id then
    return 0, 0
  end
  local digest, size_of = digest_in(name), redis.call('HSTRLEN', q.tasks, name) + redis.call('HSTRLEN', q.next, name)
  redis.call('DEL', list)
  if is_canceled(attempt.token, digest) then
    drop_named(name, 'canceled')
    return 0, size_of
  end
  if attempt.evicted and is_raw(name) then
    count_crash(digest)
  elseif attempt.evicted then
    run.crashes = run.crashes + 1
  end
  comes_back(name, run, 0, attempt.token - FRONT)
  return 1, size_of
end

-- Returns tasks of workers that leave, newest first, so that the oldest ends up in front. Of what can't be returned,
-- since a key has the wrong type or is gone, only the list stays, for check and repair. If Redis refuses for another
-- reason, as with NOPERM, that task and the older ones stay in working. Returns how many are back, whether a worker is
-- still left, and that error, for the caller to fail with.
local function return_tasks()
  local attempts, over = newest()
  sound = #attempts > 0 and pcall(check_types, q, unpack(NAMED))
  local back, bytes, refusal = 0, 0, nil
  for _, attempt in ipairs(attempts) do
    if bytes >= MIB then
      break
    end
    local list = q.process .. attempt.id
    local item = redis.pcall('LINDEX', list, 0)
    local moved, carried, err = 0, 0, item -- an error, if the list can't be read
    if type(item) == 'string' then
      local give_back = string.sub(attempt.id, -1) == 'n' and return_named or return_raw
      moved, carried, err = give_back(attempt, list, item)
    end
    if type(err) == 'table' and not string.find(err.err, 'WRONGTYPE', 1, true) then
      refusal = err
      break
    end
    back, bytes = back + moved, bytes + carried
    redis.call('ZREM', q.working .. attempt.worker, attempt.id)
    if redis.call('EXISTS', q.working .. attempt.worker) == 0 then
      over[#over + 1] = attempt.worker
    end
  end
  delete_ended()
  if #over > 0 then
    redis.call('ZREM', q.leaving, unpack(over))
  end
  local more = redis.call('EXISTS', q.leaving) == 1
  if #over > 0 and not more then
    tell_all() -- nothing started meanwhile
  end
  if redis.call('EXISTS', q.workers) == 0 then
    redis.call('HDEL', q.state, 'lease')
    if redis.call('EXISTS', q.queues) == 0 then
      redis.call('UNLINK', q.ages)
    end
  end
  return back, more, refusal
end
