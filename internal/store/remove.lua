-- remove: delete what waits under a name, also behind the task that runs. A cancel stops that one, too.
--
-- ARGV[3] name  of the task
-- ARGV[4] how   removed, or canceled
-- Uses lib_queue, lib_record, lib_merge, lib_recur, lib_wait.
--
-- Returns {removed, attempt}: 1 if a task waited; and the attempt that must stop, also if it had to before, or "".
local name, how = ARGV[3], ARGV[4]

read_state()
check_types(q, unpack(NAMED))
local attempt = read_run(redis.call('HGET', q.runs, name)).attempt
local worker = string.match(attempt, '^(.*)%.%d+%.%d+%.%d+n$')
local token = worker and how == 'canceled' and tonumber(redis.call('ZSCORE', q.working .. worker, attempt))
local record = redis.call('HGET', q.tasks, name)
record = record and read_record(record)
local behind = attempt ~= '' and read_next(name)
local removed = attempt == '' and record or behind

first_write()
if token then
  redis.call('ZADD', q.working .. worker, 'XX', -math.abs(token), attempt)
end
if behind then
  redis.call('HDEL', q.next, name)
  if not record or record.result == 0 then -- else whoever waits for a result gets the one of the running task
    store_result(name, kept_of(behind.record), how, '', '')
  end
elseif removed then
  note_passed(name, record.occurrence, 'canceled')
  store_result(name, record.result, how, '', '')
  withdraw(q, { name })
  if redis.call('ZSCORE', q.recurring, name) then
    plan_occurrence(name)
  end
end

tell()
if token then
  redis.pcall('PUBLISH', q.channel .. 'wake:' .. worker, 0) -- it sends a heartbeat
end
return { removed and 1 or 0, token and attempt or '' }
