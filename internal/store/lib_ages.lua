-- lib_ages: estimate how long the task at the front has waited, from notes that heartbeats
-- take. Nothing is written per task.
--
-- Tasks on the list are numbered in order. The number that have left the list at its front is
-- the last token minus a drift, which counts tokens that were issued without taking a task from
-- the list, and tasks returned to its front. Adding the list's length gives the number that were
-- added. Ages is a zset of notes: a time, and how many had been added by then. So the front task
-- was there by the time of the first note whose count is above the number that have left. The
-- member drift has the drift less 2^52, which sorts it before all notes.
local DRIFT = 4503599627370496
local NOTES = 256 -- and the drift

-- Returns how many tasks have left the list; false or nil if that's unknown.
local function have_left()
  local token, known = last_token(), tonumber(redis.pcall('ZSCORE', q.ages, 'drift')) -- of an error, nil
  local left = token and known and token - known - DRIFT
  return left and left >= 0 and known < 0 and left
end

-- Returns the time of a note; nil for anything else, such as "nan".
local function time_of(note)
  return string.find(note, '^%d+$') and tonumber(note)
end

-- Drops notes that another note follows within 2 seconds, or within 4, 8 … until few enough are
-- left. An age is then too low by less than twice that time.
local function thin()
  local notes, dropped, gap = redis.call('ZRANGE', q.ages, 1, -1), {}, 1000
  repeat
    local kept = now
    gap, dropped = gap * 2, {}
    for i = #notes - 1, 1, -1 do
      local at = time_of(notes[i]) or 0
      if kept - at < gap then
        dropped[#dropped + 1] = notes[i]
      else
        kept = at
      end
    end
  until #notes - #dropped <= NOTES * 3 / 4
  redis.call('ZREM', q.ages, unpack(dropped))
end

-- Removes the notes of a range, and returns the first of them.
local function forget(low, high)
  local notes = redis.call('ZRANGEBYSCORE', q.ages, low, high, 'LIMIT', 0, 1000)
  if #notes > 0 then
    redis.call('ZREM', q.ages, unpack(notes))
  end
  return notes[1]
end

-- Notes how many tasks were added, at most once a second. If that's fewer than noted before,
-- some were canceled, and the count of the first note above it is lowered.
local function note_ages(length)
  local left = length > 0 and have_left()
  if not left then
    redis.call('UNLINK', q.ages)
    left = length > 0 and last_token()
    if not left then
      return
    end
    redis.call('ZADD', q.ages, -DRIFT, 'drift')
  end
  local came = left + length
  forget(0, left)
  local last = redis.call('ZRANGE', q.ages, -1, -1, 'WITHSCORES')
  local at, noted = time_of(last[1]), tonumber(last[2])
  if at and noted > came then
    redis.call('ZADD', q.ages, came, forget('(' .. came, '+inf'))
  elseif not at or noted < came and math.floor(at / 1000) ~= math.floor(now / 1000) then
    redis.call('ZADD', q.ages, came, now)
    local notes = redis.call('ZCARD', q.ages)
    if notes > 2 * NOTES then -- another program has written here
      redis.call('UNLINK', q.ages)
    elseif notes > NOTES + 1 then
      thin()
    end
  end
end

-- Removes the notes of an empty list, in case no heartbeat follows.
local function end_ages()
  keep_drift()
  if redis.call('EXISTS', q.waiting) == 0 then
    redis.call('UNLINK', q.ages)
  end
end
