-- lib_ages: how long the task at the front has waited, as heartbeats have seen it. Nothing is
-- written for a task.
--
-- Tasks on the list are numbered in their order. How many have left it at its front is the last
-- token less a drift: what has raised the token without taking from the list, and what went back
-- to its front. With the length of the list, that is how many have come. Ages is a zset of notes:
-- a time, and how many had come by then. So the front came by the time of the first note with
-- more than have left. Its member drift is that number, less 2^52, which puts it below all notes.
local DRIFT = 4503599627370496
local NOTES = 256 -- and the drift --! page constant

-- How many have left the list; false or nil if nobody knows.
local function have_left()
  local token, known = last_token(), tonumber(redis.pcall('ZSCORE', q.ages, 'drift')) -- of an error, nil
  local left = token and known and token - known - DRIFT
  return left and left >= 0 and known < 0 and left
end

-- The time of a note; nil of anything else, such as what tonumber reads as no number.
local function time_of(note)
  return string.find(note, '^%d+$') and tonumber(note)
end

-- Where notes are many, the ones that another follows soon are dropped: within 2, 4, 8 … seconds,
-- the first that leaves few. Each of these takes off less than twice the last from an age.
local function thin()
  local notes, dropped, gap = redis.call('ZRANGE', q.ages, 1, -1), {}, 1000
  repeat
    local kept = now
    gap, dropped = gap * 2, {}
    for i = #notes - 1, 1, -1 do
      local at = time_of(notes[i]) or 0 --! between constant
      if kept - at < gap then
        dropped[#dropped + 1] = notes[i]
      else
        kept = at
      end
    end
  until #notes - #dropped <= NOTES * 3 / 4 --! page constant bound
  redis.call('ZREM', q.ages, unpack(dropped))
end

-- Forgets the notes of a range, of which there are few.
local function forget(low, high)
  local notes = redis.call('ZRANGEBYSCORE', q.ages, low, high, 'LIMIT', 0, 1000) --! page constant.2
  if #notes > 0 then
    redis.call('ZREM', q.ages, unpack(notes))
  end
  return notes[1]
end

-- Notes how many have come, at most once a second. Where fewer have come than were noted, some
-- were canceled: those behind them count as what came before.
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
    if notes > 2 * NOTES then -- somebody else's --! page bound
      redis.call('UNLINK', q.ages)
    elseif notes > NOTES + 1 then --! page bound
      thin()
    end
  end
end

-- Nothing is left of a list that is empty, should no heartbeat follow.
local function end_ages()
  keep_drift()
  if redis.call('EXISTS', q.waiting) == 0 then
    redis.call('UNLINK', q.ages)
  end
end
