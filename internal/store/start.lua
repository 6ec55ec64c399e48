-- start: take tasks.
--
-- ARGV[3]  worker       id
-- ARGV[4]  round        rises by one
-- ARGV[5]  stamp        ms in the ids of this round, chosen by the worker
-- ARGV[6]  lease        ms until it expires; 0: never
-- ARGV[7]  wanted       how many tasks at most
-- ARGV[8]  ahead        how many of them, the last ones, are prefetched
-- ARGV[9]  idle         1: the worker waits to be woken if too few start
-- ARGV[10] solo         1: it may start one risky task
-- ARGV[11] max crashes  a task that has crashed once less is risky; 0: never
-- Uses lib_keys, lib_wake, lib_lease.
--
-- Returns {first, started, last, before, more, due, now}: the token of the first; what started: payload, {payload,
-- crashes}, {name, record, retries, crashes, error}, with 0 for more than 1 MiB, or nil: it's over; the last token; the
-- round before; how many of list and ready can start, or -1 in a pause, -2 in a return; µs until the claimed time, or -1; ms.
-- Fails with EVICTED if the worker isn't a member.
local worker, round, lease = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
local wanted, ahead, solo, limit = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[10] == '1', tonumber(ARGV[11])
local AT_ONCE, MIXED, PARKED = 512, 256, 128 -- MIXED: if there's more than the list, and names of ready and schedule
local working, stamped = q.working .. worker, worker .. '.' .. ARGV[4] .. '.' .. ARGV[5] .. '.'
local format = string.format -- Redis and Lua format numbers slowly

-- A member is who has a round: join and fence change rounds and workers together.
local before = tonumber(redis.call('HGET', q.rounds, worker))
if not before then
  return redis.error_reply('EVICTED the worker is not a member of the queue')
end
read_state('token', 'place', 'taken', 'claimed')

local token, taken = state.token, state.taken
local started, scores, bytes = {}, {}, 0 -- bytes: of what was read, also if it doesn't start
local parked, took_risky = 0, false -- parked: how many were moved to risky, or skipped
local most = math.min(wanted, AT_ONCE)

-- Starts tasks of the list, if nothing else waits and none can be risky. It's the loop that runs for most tasks.
local listed = true -- whether something may be left on the list
local function start_list()
  local pop, queues, process, tasks, sum = redis.pcall, q.queues, q.process .. stamped, started, 0
  local length, last = count('LLEN', queues), token
  for n = 1, math.min(most, length) do
    local number = format('%d', n)
    local payload = pop('RPOPLPUSH', queues, process .. number)
    if payload.err then
      length = 0
      break
    end
    local size = #payload
    tasks[n], sum = size > MIB and 0 or payload, sum + size
    scores[2 * n - 1], scores[2 * n] = format('%d', last + n), stamped .. number
    if sum >= MIB then
      break
    end
  end
  listed, token, taken = length > #tasks, token + #tasks, taken + #tasks
end

-- One command says for most queues that there's only the list, and nobody is a suspect. The rest is for others and repeats.
local more_than_list = redis.call('EXISTS', q.ready, q.schedule, q.risky, q.leaving, q.crashes, q.suspects) > 0
local returning, start_all, repeated = false, nil, nil
if more_than_list or round <= before then
-- Uses lib_queue, lib_record, lib_recur.
  check_types(q, 'tasks', 'ready', 'schedule', 'risky', 'runs', 'copies', 'crashes', 'recurring', 'recurrence')
  returning = redis.call('EXISTS', q.leaving) == 1
  local counting = size.crashes > 0

  local handled = {} -- names of ready; they are removed at the end
  local function room()
    return #started < math.min(most, MIXED) and bytes < MIB and parked < PARKED and #handled < MIXED
  end

  local function begin(id, task)
    token = token + 1
    local n = #started + 1
    started[n] = task
    scores[2 * n - 1], scores[2 * n] = format('%d', token), id
  end

  -- What the worker gets to know of a raw task.
  local function describe_raw(payload, crashes)
    local shown = #payload > MIB and 0 or payload
    return crashes > 0 and { shown, crashes } or shown
  end

  local function crashes_of(digest)
    return counting and tonumber(redis.call('HGET', q.crashes, digest or '')) or 0
  end

  local function describe_named(name, record, run, crashes)
    return { name, #record > MIB and 0 or record, run.retries, crashes, run.error }
  end

  -- Fills started with what the round started and still runs. Returns the first token. It may have claimed a time, too.
  function repeated()
    redis.call('HDEL', q.state, 'claimed')
    local first, last, ids = 0, 0, {}
    for n = 1, AT_ONCE do
      ids[n], ids[AT_ONCE + n] = stamped .. n, stamped .. n .. 'n'
    end
    for i, score in ipairs(redis.call('ZMSCORE', working, unpack(ids))) do
      local n, text = (i - 1) % AT_ONCE + 1, score and redis.call('LINDEX', q.process .. ids[i], 0)
      if score then
        first, last = math.abs(tonumber(score)) - n + 1, math.max(last, n)
      end
      if text and i == n then
        started[n] = describe_raw(text, crashes_of(digest_of(text)))
      elseif text then
        local run = read_run(redis.call('HGET', q.runs, text))
        local crashes = is_raw(text) and crashes_of(digest_in(text)) or run.crashes
        started[n] = describe_named(text, redis.call('HGET', q.tasks, text) or '', run, crashes)
      end
    end
    for n = 1, last do
      started[n] = started[n] or false
    end
    return first
  end

  local function is_risky(crashes)
    return limit > 0 and crashes >= 1 and crashes >= limit - 1
  end

  -- A task that has crashed isn't prefetched, nor is what follows it. Reports whether the next one stays where it is.
  local function stays(crashes)
    if crashes > 0 then
      most = math.min(most, wanted - ahead)
    end
    return #started >= most
  end

  -- Moves names whose time has come to the end of ready. An occurrence that hasn't started yet and that
  -- nobody asserts is deleted; recur plans it again.
  local function move_due()
    local names = redis.call('ZRANGEBYSCORE', q.schedule, '-inf', now, 'LIMIT', 0, MIXED)
    if #names == 0 then
      return
    end
    local asserted, moved = redis.call('ZMSCORE', q.recurring, unpack(names)), {}
    local place, read = redis.call('HINCRBY', q.state, 'place', #names) - #names, 0
    for i, name in ipairs(names) do
      local unasserted = asserted[i] and tonumber(asserted[i]) < now
      if unasserted and read > MIB then -- the next round moves the others
        names = { unpack(names, 1, i - 1) }
        break
      elseif unasserted then
        local record = redis.call('HGET', q.tasks, name) or ''
        local occurrence = read_record(record).occurrence
        read = read + #record
        unasserted = occurrence > (tonumber(redis.call('HGET', q.recurrence, 'passed:' .. name)) or 0)
      end
      if unasserted then
        redis.call('HDEL', q.tasks, name)
        redis.call('HDEL', q.runs, name)
      else
        moved[#moved + 1], moved[#moved + 2] = place + i, name
      end
    end
    redis.call('ZREM', q.schedule, unpack(names))
    if #moved > 0 then
      redis.call('ZADD', q.ready, unpack(moved))
    end
  end

  -- Skips an occurrence that is too late and hasn't started before; the next one is planned. Returns whether it's skipped.
  local function skip(name, occurrence)
    if occurrence <= passed_of(name) then
      return false
    end
    local late = string.match(redis.call('HGET', q.recurrence, name) or '', '^[%d ]*|%d+:%d+:(%d+):')
    if not late or late == '0' or now - occurrence <= tonumber(late) then
      return false
    end
    note_passed(name, occurrence, 'skipped')
    redis.call('HDEL', q.tasks, name)
    redis.call('HDEL', q.runs, name)
    plan_occurrence(name)
    return true
  end

  -- Starts a named task, skips it, or moves it to risky if this round may start no risky one. The caller removes it.
  local runs, fresh = {}, read_run() -- runs: of what starts; they are written at the end
  local function start_named(name, run_text, from_risky)
    local record, run = redis.call('HGET', q.tasks, name), run_text and read_run(run_text) or fresh
    bytes = bytes + #(record or '')
    if not record or run.attempt ~= '' or name == '' then
      return -- another program's mistake
    end
    local occurrence = size.recurring > 0 and read_record(record).occurrence or 0
    if occurrence > 0 and skip(name, occurrence) then
      parked = parked + 1
      return
    end
    local crashes = counting and is_raw(name) and crashes_of(digest_in(name)) or run.crashes
    local risky = is_risky(crashes) and not from_risky
    if stays(crashes) then
      handled[#handled] = nil
      return
    elseif risky and not solo then
      redis.call('ZADD', q.risky, redis.call('ZSCORE', q.ready, name), name)
      parked = parked + 1
      return
    end
    solo = solo and not risky
    local id = stamped .. format('%d', #started + 1) .. 'n'
    redis.call('LPUSH', q.process .. id, name)
    local counts = run_text and table.concat({ run.retries, run.crashes, run.error }, ':') or '0:0:'
    runs[#runs + 1], runs[#runs + 2] = name, id .. ':' .. counts
    if from_risky then -- at once: by another program's mistake, the name may be in ready, too
      redis.call('HSET', q.runs, unpack(runs))
    end
    if occurrence > 0 then
      note_passed(name, occurrence)
    end
    begin(id, describe_named(name, record, run, crashes))
  end

  -- Starts the task at the front of the list, or moves it to risky.
  local function start_raw()
    local id = stamped .. #started + 1
    local payload = redis.pcall('RPOPLPUSH', q.queues, q.process .. id)
    listed = type(payload) == 'string'
    if not listed then
      return
    end
    bytes = bytes + #payload
    local digest = counting and digest_of(payload)
    local crashes = counting and crashes_of(digest) or 0
    if stays(crashes) then
      redis.call('LMOVE', q.process .. id, q.queues, 'LEFT', 'RIGHT')
      return
    end
    taken = taken + 1
    local risky = is_risky(crashes)
    if risky and not solo then
      local place = next_place()
      local name = 'r:' .. digest .. ':' .. place
      redis.call('HSET', q.tasks, name, raw_record(payload))
      redis.call('ZADD', q.copies, 0, name)
      redis.call('ZADD', q.risky, place, name)
      redis.call('DEL', q.process .. id)
      parked = parked + 1
      return
    end
    solo = solo and not risky
    begin(id, describe_raw(payload, crashes))
  end

  -- Starts the first of ready that this call hasn't handled. Returns whether there was one.
  local page, page_runs, at = {}, {}, 0
  local function start_ready()
    if at == #page then
      page, at = redis.call('ZRANGE', q.ready, #handled, #handled + math.min(most, 100) - 1), 0
      page_runs = page[1] and redis.call('HMGET', q.runs, unpack(page))
    end
    at = at + 1
    handled[#handled + 1] = page[at]
    if page[at] then
      start_named(page[at], page_runs[at], false)
    end
    return page[at] ~= nil
  end

  function start_all()
    move_due()
    local risky, returned = redis.call('ZRANGE', q.risky, 0, 0)[1], redis.call('ZCOUNT', q.ready, '-inf', '(0')
    if ahead > 0 and (risky or returned > 0) then
      most = math.min(most, wanted - ahead)
    end
    if solo and risky and room() then
      redis.call('ZREM', q.risky, risky)
      start_named(risky, redis.call('HGET', q.runs, risky), true)
      solo, took_risky = false, true
    end
    while returned > 0 and room() do
      returned = start_ready() and returned - 1 or 0
    end
    local named, turn = true, token % 2 == 0
    while (named or listed) and room() do
      if turn then
        named = named and start_ready()
      elseif listed then
        start_raw()
      end
      turn = not turn
    end
    if #handled > 0 then
      redis.call('ZREM', q.ready, unpack(handled))
    end
    if #runs > 0 then
      redis.call('HSET', q.runs, unpack(runs))
    end
  end
end

redis.call('ZREM', working, '') -- as first_write, and fails if its type is wrong
if more_than_list then
  redis.call('ZREM', q.suspects, worker)
end
redis.call('ZADD', q.workers, format('%d', deadline_after(lease)), worker)
if round <= before then
  return { repeated(), started, token, before, 0, -1, now }
end
redis.call('HSET', q.rounds, worker, ARGV[4])
local idlers = count('ZCARD', q.idle) -- how many other workers are idle
if idlers > 0 then
  idlers = idlers - redis.call('ZREM', q.idle, worker)
end

local starts = not state.paused and not returning
if starts then
  if ahead > 0 and idlers > 0 then
    most = math.min(most, wanted - ahead)
  end
  if more_than_list then
    start_all()
  else
    start_list()
  end
end
if token > state.token or taken > state.taken then
  redis.call('HSET', q.state, 'token', format('%d', token), 'taken', format('%d', taken))
end
-- Redis stores a small sorted set as a list, which it scans for each look-up. A long member makes it a skip list until the
-- set is empty.
if #started >= 24 then
  local long = string.rep('-', 65)
  redis.call('ZADD', working, 0, long, unpack(scores))
  redis.call('ZREM', working, long)
elseif #started > 0 then
  redis.call('ZADD', working, unpack(scores))
end

-- What's left, who waits for it, and who claims the next time. Risky tasks count for others only if this
-- call has moved or skipped one, or taken one: otherwise workers that may not start them would wake each other.
local due, more = -1, state.paused and -1 or -2
if starts then
  more = (listed and count('LLEN', q.queues) or 0) + (more_than_list and redis.call('ZCARD', q.ready) or 0)
end
local idle = ARGV[9] == '1' and #started < wanted - ahead and more <= 0
if idle then
  redis.pcall('ZADD', q.idle, format('%d', now), worker)
end
if starts then
  local risky = (parked > 0 or took_risky) and redis.call('EXISTS', q.risky) == 1
  if idlers > 0 and (more > 0 or risky) then
    wake(q.idle, q.channel, 1)
  end
  local soonest = more_than_list and redis.call('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')[2]
  -- Another program may have planned any time: what is claimed is whole, and can be told in µs.
  soonest = soonest and math.max(0, math.min(math.ceil(tonumber(soonest)), now + 4e12)) -- never -0
  if soonest and not (state.claimed > now and state.claimed <= soonest) then
    if idle then
      redis.call('HSET', q.state, 'claimed', soonest)
      due = math.max(soonest - now, 0) * 1000
    elseif idlers > 0 then
      wake(q.idle, q.channel, 1)
    end
  end
end
return { state.token + 1, started, token, before, more, due, now }
