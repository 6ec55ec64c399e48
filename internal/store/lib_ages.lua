-- lib_ages: notes from which one can tell how long the task at the front of the list has waited. Nothing is written for
-- each task.
--
-- Tasks on the list are numbered in order: as many have been added as have been taken and are on the list. A note is a
-- time, and how many had been added by then. The front task was there by the time of the first note that counts more
-- than have been taken.
local NOTES = 256

-- Drops notes that are close to the one before, so that at most half of them are left.
local function thin()
  local notes, dropped = redis.call('ZRANGE', q.ages, 0, -1), {}
  local gap, kept = (now - (tonumber(notes[1]) or 0)) / (NOTES / 2), -math.huge
  for _, note in ipairs(notes) do
    local at = tonumber(note) or 0
    if at - kept < gap then
      dropped[#dropped + 1] = note
    else
      kept = at
    end
  end
  if #dropped > 0 then
    redis.call('ZREM', q.ages, unpack(dropped))
  end
end

-- Notes how many tasks were added, at most once a second. If that's fewer than noted before, some were canceled, and
-- the first note that counts more is lowered.
local function note_ages(length)
  local notes = redis.pcall('ZCARD', q.ages)
  if length == 0 and notes == 0 then
    return
  end
  local last = notes ~= 0 and redis.pcall('ZRANGE', q.ages, -1, -1, 'WITHSCORES') or {}
  local at, count = tonumber(last[1]), tonumber(last[2])
  local foreign = type(notes) ~= 'number' or notes > 2 * NOTES or notes > 0 and not (at and at <= now)
  if length == 0 or foreign then -- or a clock was ahead
    redis.call('UNLINK', q.ages)
    return
  end
  local added = state.taken + length
  if at and count > added then
    local first = redis.call('ZRANGEBYSCORE', q.ages, '(' .. added, '+inf', 'LIMIT', 0, 1)[1]
    redis.call('ZREMRANGEBYSCORE', q.ages, '(' .. added, '+inf')
    redis.call('ZADD', q.ages, added, first)
  elseif not at or count < added and math.floor(at / 1000) ~= math.floor(now / 1000) then
    redis.call('ZADD', q.ages, added, now)
  end
  redis.call('ZREMRANGEBYSCORE', q.ages, '-inf', state.taken)
  if notes >= NOTES then
    thin()
  end
end
