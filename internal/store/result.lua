-- result: say how the tasks of some names ended, or whether they wait or run. It changes nothing. It stops once it has
-- read 1 MiB; the caller asks again for the other names.
--
-- then the names, one to 1,000.
-- Uses lib_queue, lib_record, lib_merge.
--
-- Returns for each name the result, or ""; and for how many ms the results of the waiting and of the running task are
-- kept: 0 if not at all, -1 if there is no such task.
local FIRST = 3

local answers, bytes = {}, 0
for i = FIRST, #ARGV do
  if bytes >= MIB then
    break
  end
  local name = ARGV[i]
  local result, record = redis.call('GET', q.result .. name) or '', redis.call('HGET', q.tasks, name)
  local waits, runs = record and kept_of(record) or -1, -1
  if read_run(redis.call('HGET', q.runs, name)).attempt ~= '' then
    local behind = read_next(name)
    runs = waits
    waits = behind and kept_of(behind.record) or -1
    bytes = bytes + #(behind and behind.record or '')
  end
  answers[#answers + 1], answers[#answers + 2], answers[#answers + 3] = result, waits, runs
  bytes = bytes + #result + #(record or '')
end
return answers
