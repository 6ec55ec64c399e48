-- lib_merge: two tasks under one name, one of which stays.

-- What waits behind a running task is "time:rule:keep:counts:record".
local function read_next(name)
  local text = redis.call('HGET', q.next, name)
  local at, rule, keep, counts, record = string.match(text or '', '^(%d+):(%a+):([01]):([01]):(.*)$')
  return at and { at = tonumber(at), rule = rule, keep = keep == '1', counts = counts == '1', record = record }
end

local function write_next(name, task)
  local head = string.format('%.0f:%s:%d:%d:', task.at, task.rule, task.keep and 1 or 0, task.counts and 1 or 0)
  redis.call('HSET', q.next, name, head .. task.record)
end

-- Returns when the one that stays may start: one waits until a time, or may start if that's 0, and one was added.
local function time_of_both(at, added)
  if added.rule == 'never' then
    return at
  elseif added.rule == 'later' then
    return math.max(at, added.at)
  elseif added.rule == 'earlier' then
    return math.min(at, added.at)
  end
  return added.at
end

-- Puts another record under a name. Whoever waits for the result of the old one then waits for that of the new one or,
-- if that has none, learns that the old one was replaced.
local function replace(name, old, text)
  if read_record(text).result == 0 then
    store_result(name, old.result, 'replaced', '', '')
  end
  redis.call('HSET', q.tasks, name, text)
end
