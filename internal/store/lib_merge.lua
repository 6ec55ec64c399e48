-- lib_merge: two tasks under one name, one of which stays.

-- A task that was added while another one has the name is "time:rule:keep:counts:record". In next, it waits behind a
-- running one.
local function read_added(text)
  local at, rule, keep, counts, record = string.match(text, '^(%d+):(%a+):([01]):([01]):(.*)$')
  return at and { at = tonumber(at), rule = rule, keep = keep == '1', counts = counts == '1', record = record }
end

local function read_next(name)
  return read_added(redis.call('HGET', q.next, name) or '')
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
