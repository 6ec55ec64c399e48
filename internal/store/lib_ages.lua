-- lib_ages: notes from which one can tell how long the task at the front of the list has waited. Nothing is written for
-- each task.
--
-- Tasks on the list are numbered in order: as many have been added as have been taken and are on the list. A note is a
-- time, and how many had been added by then. The front task was there by the time of the first note that counts more
-- than have been taken.
local MOST = 1000 -- there are fewer notes, if nobody else writes them

-- Notes how many tasks were added: at most once a second, and less often the older the first note is. If that's fewer than
-- noted before, another program has removed some, or Redis has lost them; the first note that counts more is lowered.
local function note_ages(length)
  local notes = redis.pcall('ZCARD', q.ages)
  if length == 0 and notes == 0 then
    return
  end
  local sound = type(notes) == 'number' and notes < MOST
  local first = sound and tonumber(redis.call('ZRANGE', q.ages, 0, 0)[1]) or now
  local last = sound and redis.call('ZRANGE', q.ages, -1, -1, 'WITHSCORES') or {}
  local at, count = tonumber(last[1]), tonumber(last[2])
  if length == 0 or not sound or notes > 0 and not (at and at <= now) then -- or a clock was ahead
    redis.call('UNLINK', q.ages)
    return
  end
  local added = state.taken + length
  if at and count > added then
    first = redis.call('ZRANGEBYSCORE', q.ages, '(' .. added, '+inf', 'LIMIT', 0, 1)[1]
    redis.call('ZREMRANGEBYSCORE', q.ages, '(' .. added, '+inf')
    redis.call('ZADD', q.ages, added, first)
  elseif not at or count < added and now - at >= math.max(1000, (now - first) / 32) then
    redis.call('ZADD', q.ages, added, now)
  end
  redis.call('ZREMRANGEBYSCORE', q.ages, '-inf', state.taken)
end
