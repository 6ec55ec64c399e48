-- recur: assert a page of schedules. A schedule is asserted by its print, "<instant>:<digest>": the
-- digest is of its payload, its options, and its next ten times after the instant. Redis has the print
-- of the one in force; the caller compares its own after the same instant. It sends its times and
-- payload only if the answer asks for them. If several schedules are asserted under a key, the newest
-- is in force.
--
-- KEYS[17] recurring zset  entry → until when it's asserted, ms
-- ARGV[6] period  ms for which they are asserted
-- ARGV[7] judge   Redis time in ms until which the caller may end schedules that no peer asserts
-- ARGV[8] schedules  each: entry; print; since in µs, 0 if unknown, or -1 if the caller has
--                 just changed it; late in ms; times in ms, ascending, or ""; payload; card or "";
--                 with times, its print after a newer instant, from which it's known by then
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added, lib_recur.
--
-- Returns {asserted, ended, now}: for each schedule its since, the time after which its times are
-- wanted, and its state: held, compare (its print after that time), wanted (times and payload), more
-- (times), older (another schedule is in force) or damaged; the entries of schedules that have ended;
-- and the time.
local period, judge = tonumber(ARGV[6]), now <= tonumber(ARGV[7])
redis.call('ZCARD', KEYS[17]) -- if a key has the wrong type, fail before anything changes
if broken then
  return broken
end

-- Returns the replaced prints, newest first. Four are enough for all deploys under way at the same time.
local function replaced(before, print, since)
  local all = { print .. ':' .. since }
  for one in string.gmatch(before or '', '%S+') do
    if #all < 4 then
      all[#all + 1] = one
    end
  end
  return table.concat(all, ' ')
end

local function instant_of(print)
  return tonumber((string.match(print, '^%d+'))) or 0
end

-- Returns since when a caller has a schedule that isn't in force, or nil and the instant after which to compare
-- it next: it may be one of those replaced. The walk goes from the newest to the oldest.
local function age(was, before, print)
  local prints, seen = { was }, 0
  for one, since in string.gmatch(before or '', '(%S+):(%d+)') do
    if one == print then
      return tonumber(since)
    end
    prints[#prints + 1] = one
  end
  for i, one in ipairs(prints) do
    seen = instant_of(one) == instant_of(print) and i or seen
  end
  if prints[seen + 1] then
    return nil, instant_of(prints[seen + 1])
  end
  return micros
end

-- Returns the time after which more times are wanted: the last one that is known and has come, since the
-- next ones may depend on it, or now if all have passed.
local function base(print, times)
  local at, last = now, tonumber((string.match(string.sub(times, -16), '%d+$'))) or 0
  if last > now then
    for one in string.gmatch(instant_of(print) .. ' ' .. times, '%d+') do
      at = tonumber(one) <= now and one or at
    end
  end
  return tonumber(at)
end

-- Reports whether the call may drop or copy one more payload: at most 1 MiB, except for the
-- first. Payloads that may be read count even if they aren't.
local bytes = 0
local function affords(key)
  local size = redis.pcall('HSTRLEN', key, 'payload')
  size = type(size) == 'number' and size or 0
  if bytes > 0 and bytes + size > BYTES then
    return false
  end
  bytes = bytes + size
  return true
end

-- Corrects the plan of an entry if it's missing, was withheld, or belongs to a replaced
-- schedule. A missing plan that this call can't afford is left to a later call, unless the
-- caller has just sent the payload. If the clock was ahead, a retry doesn't wait until that time comes.
local function mend(entry, passed, changed, sent, ahead)
  local key = q.keyed .. entry
  added.lift(entry)
  local process, took, turn, held = unpack(redis.call('HMGET', key, 'process', 'took', 'turn', 'withheld'))
  local waits = redis.call('HEXISTS', key, 'payload') == 1
  turn = number(turn)
  local fresh = waits and turn > passed
  if changed and not (fresh and turn <= now) then
    if fresh then
      local _, card = unwait(q, entry)
      cards.replaced(entry, card, redis.call('HGET', courses.key(entry), 'card'))
      waits, held = false, nil
    end
    redis.call('HSET', courses.key(entry), 'passed', ahead and passed or now)
  end
  if ahead and waits and turn > 0 and not fresh and not process and number(redis.call('HGET', key, 'due')) > now + courses.back then
    redis.call('HSET', key, 'due', now)
    plan(q, entry, now)
  end
  if fresh and held and not process then
    redis.call('HDEL', key, 'withheld')
    redis.call('HSET', key, 'due', turn)
    plan(q, entry, turn)
  elseif not waits and (took or not process) and (sent or affords(courses.key(entry))) then
    courses.follow(entry, process)
  end
end

-- Asserts one schedule and returns its answer. until_ is the time until which it was asserted
-- before this call.
local function assert_one(until_, entry, print, since, late, times, payload, card, renewed)
  local record = courses.key(entry)
  local known = redis.pcall('HMGET', record, 'print', 'since', 'passed', 'more', 'before')
  if known.err then
    return { since, 0, 'damaged' }
  end
  local was, began = known[1] ~= '' and known[1], number(known[2])
  local mine = was and (was == print or was == renewed)
  local passed = known[3] and number(known[3]) or now
  -- Redis's clock was ahead when the schedule was last asserted, or an occurrence started. Its times
  -- and its plan may lie that far ahead, too, so all of it is made again.
  local ahead = until_ > now + math.max(period, courses.longest) or courses.is_ahead(record, passed)
  if ahead then
    until_, passed = 0, passed > now + courses.back and now or passed
  end
  local newest = micros + courses.back * 1000
  since = since > newest and 0 or since
  if began > newest then
    began = mine and micros or 0
  end
  local lacks = times == '' and (not mine or ahead or number(known[4]) <= now)
  if times == '' and not lacks and 5 * (until_ - now) >= 4 * period then
    return { math.max(since, began), 0, 'held' } -- a peer has just asserted it
  end
  if type(redis.pcall('HLEN', q.keyed .. entry)) ~= 'number' then
    return { since, 0, 'damaged' }
  end
  if mine then
    since = math.max(since, began)
  elseif since < 0 or not was then
    since = since > 0 and since or micros
  elseif since == 0 then
    local known_since, at = age(was, known[5], print)
    if not known_since then
      return { 0, at, 'compare' }
    end
    since = known_since
  end
  if was and not mine then
    local at = instant_of(was)
    if at ~= instant_of(print) and at ~= instant_of(renewed) then
      return { since, at, 'compare' }
    elseif since <= began and until_ >= now then
      return { since, 0, 'older' }
    end
  end
  local before = mine and not ahead and (lacks or times ~= '') and redis.call('HGET', record, 'times') or ''
  if lacks and mine and not ahead then
    redis.call('ZADD', KEYS[17], now + period, entry)
    return { since, base(was, before), 'more' }
  elseif lacks then
    return { since, ahead and passed or now, 'wanted' }
  end
  if was and not mine and not affords(q.keyed .. entry) then -- left to the next call
    return { since, now, 'wanted' }
  end
  if times ~= '' then
    local all, newest = {}, passed
    for at in string.gmatch(before .. ' ' .. times, '%d+') do
      if tonumber(at) == passed and passed > now then
        all[1] = at -- for is_ahead
      elseif tonumber(at) > newest then
        newest = tonumber(at)
        if #all == 0 or newest > now then -- of the overdue ones, only the first occurs
          all[#all + 1] = at
        end
      end
    end
    if was and not mine then
      redis.call('HSET', record, 'before', replaced(known[5], was, string.format('%d', began)))
    end
    redis.call('HSET', record, 'print', renewed, 'since', since, 'late', late, 'more', math.floor((now + newest) / 2),
      'times', table.concat(all, ' '), 'payload', payload, 'card', card, 'passed', passed)
  end
  redis.call('ZADD', KEYS[17], now + period, entry)
  mend(entry, passed, was and not mine or ahead, times ~= '', ahead)
  return { since, 0, 'held' }
end

local answers, ended, entries = {}, {}, {}
local at = 8
if (ARGV[at + 4] or '') == '' then -- nothing is added, so it must work on a full Redis
  first_write()
end
for i = at, #ARGV, 8 do
  entries[#entries + 1] = ARGV[i]
end
local untils = #entries > 0 and redis.call('ZMSCORE', KEYS[17], unpack(entries))
for i = at, #ARGV, 8 do
  answers[#answers + 1] = assert_one(tonumber(untils[#answers + 1] or 0), ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]),
    ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ARGV[i + 7])
end
if judge then
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[17], '-inf', '(' .. now, 'LIMIT', 0, 50)) do
    local passed, turn = courses.passed(entry), redis.pcall('HGET', q.keyed .. entry, 'turn')
    if type(turn) == 'string' and (not passed or number(turn) > passed) then
      if not affords(q.keyed .. entry) then
        break
      end
      local _, card = unwait(q, entry)
      cards.ended(entry, card, 'removed', '', '')
    end
    redis.call('DEL', courses.key(entry))
    redis.call('ZREM', KEYS[17], entry)
    ended[#ended + 1] = entry
  end
end
if not paused then
  alert(q, 0)
end
return { answers, ended, now }
