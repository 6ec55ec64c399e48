-- requeue: move failed tasks back, with their counts at zero: raw ones to the back of the list, others to the end of
-- those that are ready. An expiry time that has passed is dropped. A call ends early once it has moved 1 MiB.
--
-- then the names in the failed queue, one to 1,000.
-- Uses lib_queue, lib_record, lib_wait.
--
-- Returns for each name that it has looked at: requeued; taken: another task waits or runs under the name to go back
-- to; running: a handler of the failed queue has it; or gone.
local FIRST = 3

local failed = keys_of(ARGV[1] .. ':failed')
read_state()
check_types(q, 'queues', 'tasks', 'ready')
check_types(failed, unpack(NAMED))

-- Returns the name to go back to, "" for a raw task, and the metadata without the failure: that begins with
-- "kind:when:worker:attempt:retries:crashes:", and the lengths of this name and of the error.
local function read_failure(metadata)
  local back, error, from = string.match(metadata, '^%a+:%d+:[^:]*:[^:]*:%d+:%d+:(%d+):(%d+):()')
  if not from then
    return '', ''
  end
  return string.sub(metadata, from, from + back - 1), string.sub(metadata, from + back + error)
end

-- Moves one task, and returns what becomes of it. It stays in the failed queue until the end of the call.
local moved, seen = {}, {}
local function move(name, text)
  local record, back = (read_record(text))
  back, record.metadata = read_failure(record.metadata)
  if back == '' then
    redis.call('LPUSH', q.queues, record.payload)
    startable = startable + 1
  elseif redis.call('HEXISTS', q.tasks, back) == 1 then
    return 'taken'
  else
    if tonumber(record.expires) <= now then
      record.expires = 0
    end
    redis.call('HSET', q.tasks, back, write_record(record))
    redis.pcall('HINCRBY', q.state, 'added', 1)
    make_ready(back, next_place())
    redis.pcall('DEL', q.result .. back)
  end
  moved[#moved + 1], seen[name] = name, true
  return 'requeued'
end

first_write()
local answers, bytes = {}, 0
for i = FIRST, #ARGV do
  local name = ARGV[i]
  local run = read_run(redis.call('HGET', failed.runs, name))
  local size = run.attempt == '' and not seen[name] and redis.call('HSTRLEN', failed.tasks, name) or 0
  if bytes > 0 and bytes + size > MIB then
    break
  end
  bytes = bytes + size
  local answer = size > 0 and move(name, redis.call('HGET', failed.tasks, name))
  answers[#answers + 1] = run.attempt ~= '' and 'running' or answer or 'gone'
end
withdraw(failed, moved)

tell()
if startable > 0 then
  redis.pcall('PUBLISH', q.channel .. 'enqueue', startable)
end
return answers
