-- delete: drop what waits; running and failed tasks stay. The first call drops the list. Each call then drops a page of
-- named tasks: at most 50, and no more after 1 MiB.
--
-- ARGV[3] first  1: this is the first call
-- Uses lib_queue, lib_record, lib_merge, lib_recur, lib_wait.
--
-- Returns how many tasks are left that wait.
local PAGE = 50

check_types(q, 'queues')
check_types(q, unpack(NAMED))

first_write()
if ARGV[3] == '1' then
  redis.call('UNLINK', q.queues, q.crashes, q.ages)
  redis.pcall('PUBLISH', q.channel .. 'delete', '')
end

local dropped, bytes = 0, 0
local function has_room()
  return dropped < PAGE and bytes < MIB
end

-- Counts a dropped task. Callers that wait for its result learn that it's gone.
local function drop(name, text)
  dropped, bytes = dropped + 1, bytes + #text
  local record = read_record(text)
  if record.result > 0 then
    redis.pcall('PUBLISH', q.channel .. 'end:' .. redis.sha1hex(name), '')
  end
  return record
end

local left = 0
for _, kind in ipairs({ 'ready', 'schedule', 'risky' }) do
  for _, name in ipairs(redis.call('ZRANGE', q[kind], 0, PAGE - 1)) do
    if has_room() then
      local record = drop(name, redis.call('HGET', q.tasks, name) or '')
      note_passed(name, record.occurrence, 'canceled')
      withdraw(q, { name })
    end
  end
  left = left + redis.call('ZCARD', q[kind])
end

-- What waits behind a running task.
for _, name in ipairs(has_room() and redis.call('HRANDFIELD', q.next, PAGE) or {}) do
  if has_room() then
    local behind = read_next(name)
    drop(name, behind and behind.record or '')
    redis.call('HDEL', q.next, name)
  end
end
return left + redis.call('HLEN', q.next)
