-- recur: assert schedules, and end those that nobody asserts.
--
-- ARGV[3] period  for how many ms they are asserted
-- ARGV[4] judge   Redis's time until which this call may end schedules
-- then the schedules. Each: name, since, prints, times, record.
--         since: since when the caller has it, in ms, as answered before; 0: unknown; -1: it has just changed
--         prints: "instant:digest" of the record and the next ten times after the instant, separated by spaces
--         times: ms, ascending, or "" if no answer wanted them. With times, the last print is the one after the time
--         in that answer. record: as in lib_record, enqueued and due at 0
-- Uses lib_queue, lib_record, lib_recur, lib_wait.
--
-- Returns {answers, ended, now}. The answer for each schedule is its since, a word, and what the caller needs for that:
--   held     it's in force
--   compare  the prints after these instants are wanted
--   wanted   the times after this one are wanted, and the record
--   more     the same: its times are running out
--   older    another one is in force
-- ended has the names of the schedules that were ended.
local period, judge = tonumber(ARGV[3]), tonumber(ARGV[4])
local FIRST = 5
local KEPT = 5 -- prints: that of the schedule in force, and the last ones that were replaced
local LONGEST = 60000 -- ms; callers assert for less
local BACK = 3600000 -- ms by which a clock may be set back without an occurrence that starts again

read_state()
check_types(q, unpack(NAMED))

-- Reports whether the call may handle one more schedule: it reads or drops at most 1 MiB, and more only of one.
local bytes = 0
local function affords(name)
  local more = redis.call('HSTRLEN', q.tasks, name) + redis.call('HSTRLEN', q.recurrence, name)
  if bytes > 0 and bytes + more > MIB then
    return false
  end
  bytes = bytes + more
  return true
end

-- Reads what is known of a name's schedules: when more times are wanted, and the prints, that in force first, each with
-- its since: "more instant:digest:since …".
local function read_prints(name)
  local text = redis.call('HGET', q.recurrence, 'prints:' .. name) or ''
  local known = {}
  for print, instant, since in string.gmatch(text, '((%d+):%x+):(%d+)') do
    known[#known + 1] = { print = print, instant = instant, since = tonumber(since) }
  end
  return tonumber(string.match(text, '^%d*')) or 0, known
end

local function times_of(name)
  return string.match(redis.call('HGET', q.recurrence, name) or '', '^[%d ]*')
end

-- Reports whether Redis's clock was ahead when a schedule was asserted, or an occurrence started. If one that lies far
-- ahead was taken away, what has passed lies there, too, but is one of the schedule's times.
local function was_ahead(name, asserted, since, passed)
  return asserted > now + math.max(period, LONGEST) or since > now + BACK
    or passed > now + BACK and not string.find(' ' .. times_of(name) .. ' ', string.format(' %.0f ', passed), 1, true)
end

-- Returns the time after which more times are wanted: the last known one that has come, since the next ones may depend
-- on it; or now if none is left.
local function base(name, instant)
  local last = tonumber(instant)
  for at in string.gmatch(times_of(name), '%d+') do
    if tonumber(at) > now then
      return last
    end
    last = tonumber(at)
  end
  return now
end

-- Takes away the occurrence of a schedule that is replaced or ends, if it hasn't started before and isn't due: a deploy
-- doesn't make a due one late. Returns whether it's due and stays.
local function drop_occurrence(name, passed, due, how, result)
  local record = read_record(waiting(name) or '')
  if record.occurrence <= passed then
    return false
  elseif record.occurrence <= due then
    return true
  end
  if result == 0 then
    store_result(name, record.result, how, '', '')
  end
  withdraw(q, { name })
  return false
end

-- Stores the times of a schedule, and puts its print in front of the others. mine is the number of its old print.
local function store(name, known, mine, since, prints, times, record, passed)
  local before = mine == 1 and times_of(name) or ''
  local all, last = {}, passed
  for at in string.gmatch(before .. ' ' .. times, '%d+') do
    if tonumber(at) == passed and passed > now then -- for was_ahead
      all[1] = at
    elseif tonumber(at) > last then
      last = tonumber(at)
      if #all == 0 or last > now then -- of the overdue ones, only the first occurs
        all[#all + 1] = at
      end
    end
  end
  local list = { string.match(prints, '%S+$') .. string.format(':%.0f', since) }
  for i, one in ipairs(known) do
    if i ~= mine and #list < KEPT then
      list[#list + 1] = one.print .. string.format(':%.0f', one.since)
    end
  end
  local parts = {} -- the Lua of test servers can't join thousands at once
  for i = 1, #all, 100 do
    parts[#parts + 1] = table.concat(all, ' ', i, math.min(i + 99, #all))
  end
  redis.call('HSET', q.recurrence, name, table.concat(parts, ' ') .. '|' .. record,
    'prints:' .. name, string.format('%.0f ', (now + last) / 2) .. table.concat(list, ' '), 'passed:' .. name, passed)
end

-- Asserts one schedule, and returns its answer.
local function assert_one(name, since, prints, times, record)
  local asserted = tonumber(redis.call('ZSCORE', q.recurring, name)) or 0
  local more, known = read_prints(name)
  local passed = passed_of(name)
  passed = passed > 0 and passed or now
  if was_ahead(name, asserted, known[1] and known[1].since or 0, passed) then
    known, asserted = {}, 0 -- all is made again
    passed = passed > now + BACK and now or passed
  end
  since = since > now + BACK and 0 or since

  -- Which of those known is it?
  local mine, unknown = nil, {}
  for i, one in ipairs(known) do
    if string.find(' ' .. prints .. ' ', ' ' .. one.print .. ' ', 1, true) then
      mine = mine or i
    end
  end
  for i, one in ipairs(known) do
    if not string.find(' ' .. prints, ' ' .. one.instant .. ':', 1, true) and (i == 1 or since == 0 and not mine) then
      unknown[#unknown + 1] = one.instant
    end
  end
  if #unknown > 0 then
    return { since, 'compare', table.concat(unknown, ' ') }
  end

  -- Which of two is newer?
  local newest = known[1] and known[1].since or 0
  if mine == 1 or mine and since >= 0 then
    since = math.max(since, known[mine].since)
  elseif since <= 0 then
    since = math.max(now, newest + 1)
  end
  if mine ~= 1 and since <= newest and asserted >= now then
    return { since, 'older', '' }
  end

  local lacks = times == '' and (mine ~= 1 or now >= more)
  if times == '' and not lacks and 5 * (asserted - now) >= 4 * period then
    return { since, 'held', '' } -- somebody has just asserted it
  elseif lacks and mine == 1 then
    redis.call('ZADD', q.recurring, now + period, name)
    return { since, 'more', string.format('%.0f', base(name, known[1].instant)) }
  elseif lacks or times ~= '' and not affords(name) then
    return { since, 'wanted', string.format('%.0f', #known > 0 and now or passed) }
  end

  redis.call('ZADD', q.recurring, now + period, name) -- refused on a full Redis, unless first_write was before
  if mine ~= 1 then
    local stays = drop_occurrence(name, passed, now, 'replaced', kept_of(record))
    passed = #known > 0 and not stays and now or passed
  end
  if times ~= '' then
    store(name, known, mine, since, prints, times, record, passed)
  end
  if redis.call('HEXISTS', q.tasks, name) == 0 and (times ~= '' or affords(name)) then
    plan_occurrence(name)
  end
  return { since, 'held', '' }
end

if (ARGV[FIRST + 3] or '') == '' then
  first_write() -- without times, it works on a full Redis
end

local answers, over = {}, {}
for i = FIRST, #ARGV, 5 do
  answers[#answers + 1] = assert_one(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
end
if now <= judge then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', q.recurring, '-inf', '(' .. now, 'LIMIT', 0, 50)) do
    if not affords(name) then
      break
    end
    drop_occurrence(name, passed_of(name), 0, 'removed', 0)
    redis.call('HDEL', q.recurrence, name, 'passed:' .. name, 'prints:' .. name, 'last:' .. name)
    redis.call('ZREM', q.recurring, name)
    over[#over + 1] = name
  end
end
tell()
return { answers, over, now }
