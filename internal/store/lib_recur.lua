-- lib_recur: occurrences of schedules; the table of keys in docs/protocol.md says what recurrence has. In the record of a
-- schedule, expires is after how many ms an occurrence is too late; in that of an occurrence, it's 0.

local function passed_of(name)
  return tonumber(redis.call('HGET', q.recurrence, 'passed:' .. name)) or 0
end

-- Notes that an occurrence has passed, and with it all times of its schedule up to now; and how it has ended, if it has.
local function note_passed(name, occurrence, how)
  local recurs = (occurrence > 0 or how == 'finished') and redis.call('ZSCORE', q.recurring, name)
  if recurs and occurrence > passed_of(name) then
    redis.call('HSET', q.recurrence, 'passed:' .. name, math.max(now, occurrence))
  end
  if recurs and how then
    local before = ' ' .. string.sub(redis.call('HGET', q.recurrence, 'last:' .. name) or '', 1, 200)
    local four = string.match(before, '^ %S+ ?%S* ?%S* ?%S*') or ''
    redis.call('HSET', q.recurrence, 'last:' .. name, string.format('%s:%.0f:%.0f%s', how, occurrence, now, four))
  end
end

-- Plans the first time of a schedule that hasn't passed. Returns whether there is one.
local function plan_occurrence(name)
  local times, text = string.match(redis.call('HGET', q.recurrence, name) or '', '^([%d ]*)|(.*)$')
  local passed = passed_of(name)
  for at in string.gmatch(times or '', '%d+') do
    if tonumber(at) > passed then
      local record = read_record(text)
      record.enqueued, record.due, record.expires, record.occurrence = now, at, 0, tonumber(at)
      redis.call('HSET', q.tasks, name, write_record(record))
      plan(name, tonumber(at))
      return true
    end
  end
  return false
end
