-- lib_recur: occurrences of schedules. In recurrence, a name has "times|record", passed:name the time up to which its
-- occurrences have passed, and prints:name is for recur.

local function passed_of(name)
  return tonumber(redis.call('HGET', q.recurrence, 'passed:' .. name)) or 0
end

-- Notes that an occurrence has passed, and with it all times of its schedule up to now.
local function note_passed(name, occurrence)
  if occurrence > passed_of(name) and redis.call('ZSCORE', q.recurring, name) then
    redis.call('HSET', q.recurrence, 'passed:' .. name, math.max(now, occurrence))
  end
end

-- Plans the first time of a schedule that hasn't passed. Returns whether there is one.
local function plan_occurrence(name)
  local times, text = string.match(redis.call('HGET', q.recurrence, name) or '', '^([%d ]*)|(.*)$')
  local passed = passed_of(name)
  for at in string.gmatch(times or '', '%d+') do
    if tonumber(at) > passed then
      local record = read_record(text)
      record.enqueued, record.due, record.occurrence = now, at, tonumber(at)
      redis.call('HSET', q.tasks, name, write_record(record))
      plan(name, tonumber(at))
      return true
    end
  end
  return false
end
