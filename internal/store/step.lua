-- step: one round of a worker with a queue. It settles processes, then starts some:
-- first due entries of the schedule, then added tasks and the list.
--
-- ARGV[6]  worker    id
-- ARGV[7]  round     rises by one. A repeated or overtaken round starts nothing and reports
--                    what it started before; a round that is too old is refused
-- ARGV[8]  lease     ms until it expires; 0: never
-- ARGV[9]  seen      token of the last cancel that the worker knows
-- ARGV[10] issued    the highest token that the worker knows. If the last one is lower, Redis has
--                    lost tokens, and the worker doesn't know the cancels that have them now
-- ARGV[11] idle      1: if too few tasks start, the worker waits to be woken
-- ARGV[12] crashes   the worker fails a task after this many dead workers; 0: never
-- ARGV[13] solo      1: may start one task that is one crash away from failing
-- ARGV[14] keep      how many failed tasks to keep; 0: all, since OnFailed handles them. In a
--                    failed queue, how many tasks that were set aside
-- ARGV[15] head      start of the failed queue's key names; "": this is a failed queue
-- ARGV[16] tail      end of these names
-- ARGV[17] wake_failed  channel prefix to wake its workers
-- ARGV[18] done      channel for the events of finished tasks
-- ARGV[19] outcomes  how many; each: process, token, verb and an argument of the verb.
--                    finish: "=" and the result; "#" and bytes:digest of one that is too large; or "". drop: canceled, no event. stop: to the front.
--                    retry: delay in ms, then optionally ":" and the error. snooze: ms, and no retry.
--                    fail: kind:due:reason, due in ms if it's known
-- ARGV[20] entries   how many of the outcomes, counted from the first, may be of the schedule
-- ARGV[21] ends      how many tasks, from the list or added, finish without a result; each: process, token
-- ARGV[22] adds      how many of the ends, counted from the first, are added tasks
-- ARGV[23] stopping  how many; each: name of a cancel, and a running process that it covers.
--                    Before them, the token of the cancel up to which this list is complete
-- ARGV[24] heard     how many; each: digest from a cancel message
-- ARGV[25] ahead     how many of the processes to start, counted from the last, are prefetched: they
--                    start only if no other worker is idle
-- ARGV[26] passed    how many entries at the head of the schedule the worker passed over, from its last answer
-- ARGV[27] last      the last of them
-- ARGV[28] first     the time of the first
-- ARGV[29] lists     outcomes, ends, stopping, heard, then the ids of the processes to start
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added, lib_recur, lib_settle, lib_return, lib_failed.
--
-- Returns {settled, odd, started, plain, token, cancels, seen, rank, hungry,
-- again, trouble, recorded, due, last, dropped, passed, observed, now}:
-- settled    for each outcome: ok; canceled, if a task to return or retry was dropped because of a
--            cancel; gone, if it was settled before; or refused, if a key has the wrong type
-- odd        for each end that wasn't ok: its place and the same word
-- started    for each started task that may need more than its payload: payload, token, details.
--            The payload is "" if it's large and has crashed too often: it may be what kills workers.
--            Details of a plain task: "". Of an added one: its field of entries, name and card, from
--            which the entry follows. Otherwise: {entry or "", retries, crashes, the failure in a
--            failed queue, ms when it was due (for an occurrence: its time) or 0, card, error of
--            the last attempt, 1 if it's known only by its key}
-- plain      payloads of the tasks started after them
-- token      the last token
-- cancels    for each new cancel: name, token
-- seen       token of the last cancel returned
-- rank       among the idle workers; -1: it isn't idle
-- hungry     how many other workers are idle because nothing could start; -1 if something could
--            start, even if the worker asked for nothing
-- again      1: the next round should follow immediately
-- trouble    why nothing could be started
-- recorded   for each digest heard: token of its cancel
-- due        µs until the worker should look again, at most an hour; or -1
-- last       the previous round; older than the worker expects if Redis has lost writes
-- dropped    how many failed tasks were dropped because there were more than keep
-- passed     {how many entries at the head of the schedule have been passed over so far, the last,
--            the time of the first}; {} if the step didn't read the schedule
-- observed   1: observers got the event of a finished task
-- now        ms of Redis time
-- Fails with EVICTED if the worker isn't a member.
local worker, round, lease = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local seen, issued, idle = tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1'
local most, solo, keep, done = tonumber(ARGV[12]), ARGV[13] == '1', tonumber(ARGV[14]), ARGV[18]
local outcomes, entries, ends = tonumber(ARGV[19]), tonumber(ARGV[20]), tonumber(ARGV[21])
added.ends = tonumber(ARGV[22])
local runs, heard, ahead = tonumber(ARGV[23]), tonumber(ARGV[24]), tonumber(ARGV[25])
local failed = ARGV[15] ~= '' and failed_queue(ARGV[15], ARGV[16], ARGV[17])
local working = q.working .. worker
local passed, passed_last, passed_first = tonumber(ARGV[26]), ARGV[27], tonumber(ARGV[28]) or 0
local at = 29

-- All checks first, since Redis doesn't roll back.
if not redis.call('ZSCORE', q.workers, worker) then
  return redis.error_reply('EVICTED the worker is not a member of the queue')
end
local last = tonumber(redis.call('HGET', q.rounds, worker)) or 0
if round < last - 3 then
  return redis.error_reply('STALE later rounds have been answered')
end
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
if broken then
  return broken
end

-- The last check: the key of what the worker holds is readable. The command is needed anyway, to
-- look up the first processes to settle. If holds is true, the worker holds something. If it's
-- false, the worker may hold nothing.
local ending, held = {}, {} -- the plain ends, and the tokens of their processes
for i = 1, ends do
  ending[i] = ARGV[at + 4 * outcomes + 2 * i - 2]
end
if ends > 0 then
  held = redis.call('ZMSCORE', working, unpack(ending))
end
local score = outcomes > 0 and redis.call('ZSCORE', working, ARGV[at])
local holds = score or held[1]
if outcomes + ends == 0 then
  holds = redis.call('ZCARD', working) > 0
end

local overtaken = round < last
if overtaken then
  first_write()
else
  redis.pcall('ZREM', q.idle, worker) -- as first_write
  redis.call('HSET', q.rounds, worker, round)
end
if suspecting then
  redis.call('ZREM', q.suspects, worker)
end
redis.call('ZADD', q.workers, deadline_after(lease), worker)
local idlers = redis.pcall('ZCARD', q.idle)
idlers = type(idlers) == 'number' and idlers or 0

-- Reports whether observers are connected to this server, as far as it knows. It's called only
-- if publishing takes time: sending a short message is as cheap as asking.
local observers -- the answer; nil before the first call
local function has_observers()
  if observers == nil then
    local subscribers, patterns = redis.pcall('PUBSUB', 'NUMSUB', done), redis.pcall('PUBSUB', 'NUMPAT')
    observers = type(patterns) ~= 'number' or patterns > 0 or tonumber(subscribers[2]) ~= 0
  end
  return observers
end

-- Publishes the event of a finished task, until an event reaches nobody. The event of a large
-- payload or result has its length and digest: encoding takes ten times as long as hashing.
-- A step encodes a limited number of bytes, as many as a worker that knows of observers settles in
-- a round. A worker that doesn't know yet may finish a thousand large tasks: beyond the limit,
-- events have the length.
local publishing, observed, encoded = true, false, 0
local function announce(payload, word)
  if not publishing then
    return
  end
  local LARGE, MOST = 65536, 131072
  local event, full = { workerId = worker }, encoded >= MOST
  local function tell_of(name, value)
    if full or #value > 1024 and not has_observers() then
      event[name .. 'Size'] = #value
    elseif #value > LARGE then
      event[name .. 'Size'], event[name .. 'Digest'], encoded = #value, digests.sum(value), encoded + #value / 10
    else
      event[name], encoded = value, encoded + #value
    end
  end
  tell_of('task', payload)
  local size, digest = string.match(word, '^#(%d+):(%x+)$')
  if size then
    event.resultSize, event.resultDigest = tonumber(size), digest
  elseif word ~= '' then
    tell_of('result', string.sub(word, 2))
  end
  local reached = redis.pcall('PUBLISH', done, cjson.encode(event))
  publishing = type(reached) == 'number' and reached > 0
  observed = publishing
end

local gave_up = false -- something went to the failed queue, or aside

later(function(failures)
  -- Moves the task of a process to the failed queue. In a failed queue, sets it aside, as an entry that is
  -- never due. Returns true, or false and nil as give_back does.
  function failures.give_up(id, started, kind, due, reason)
    if failed and not failures.sound(failed) then
      return nil
    end
    local payload, entry, tried, died, card = take_out(id)
    if payload == nil then
      return nil
    end
    if not payload or count_canceled(payload, entry, id, started, 'stopped') then
      remove(working, id, payload, entry, payload and 'canceled')
      cards.ended(entry, payload and card, 'canceled', '', '')
      return false
    end
    gave_up = true
    if not is_key(entry) then
      died = crashes_of(payload)
      forget_crashes(payload)
    end
    if failed then
      failures.add(failed, worker, id,
        { payload = payload, entry = entry, retries = tried, crashes = died, kind = kind, reason = reason, card = card,
          due = tonumber(due), turn = is_key(entry) and not q.running[id] and redis.call('HGET', q.keyed .. entry, 'took') })
      remove(working, id, payload, entry, (kind == 'expired' or kind == 'crashed') and kind or 'failed')
      cards.ended(entry, card, kind == 'expired' and kind or 'failed', reason, '')
    elseif entry then
      redis.call('ZREM', working, id)
      entry_returned(entry, id, payload, ASIDE + now, tried, died, card)
    else
      remove(working, id, payload, nil)
      await(q, 'r:' .. id, payload, ASIDE + now, tried, died)
      plan(q, 'r:' .. id, ASIDE + now)
    end
    return true
  end
end, failures)

local settled, trouble = {}, ''
local any = keyed
for i = 1, outcomes do
  keyed = any and i <= entries -- so that plain tasks cost no extra commands
  local id, started, verb, word = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  at = at + 4
  if i > 1 then
    score = redis.call('ZSCORE', working, id)
  end
  if tonumber(score) ~= started then
    settled[i] = 'gone'
  elseif verb == 'finish' or verb == 'drop' then
    local payload = finish(working, id, started, verb == 'finish' and 'finished' or 'stopped', word)
    settled[i] = payload and 'ok' or 'refused'
    if payload and verb == 'finish' then
      announce(payload, word)
    end
  else
    local moved
    if verb == 'stop' then
      moved = give_back(working, id, started, 0)
    elseif verb == 'retry' or verb == 'snooze' then
      local delay, text = string.match(word, '^(%d+):?(.*)$')
      moved = put_off(working, id, started, tonumber(delay), text, verb == 'retry' and 1 or 0)
    else
      local kind, due, reason = string.match(word, '^(%a+):(%d*):(.*)$')
      moved = failures.give_up(id, started, kind, due, reason)
    end
    settled[i] = moved and 'ok' or moved == false and 'canceled' or 'refused'
  end
  if settled[i] == 'refused' then
    trouble = 'WRONGTYPE a key of the queue or of the process is of another type'
  end
end

-- Plain ends make up most of a busy worker's report. They aren't entries, and if nothing else
-- needs attention, a few commands settle all of them. For an added task without a kept result,
-- two fields of entries are deleted.
local odd = {}
local usual = not (canceling or counting)
local over, lists, ties, known = {}, {}, {}, {}
if added.ends > 0 then
  known = redis.call('HMGET', q.entries, unpack(ending, 1, added.ends))
end
for i, started in ipairs(held) do
  local id, what, name, card = ending[i], nil, nil, nil
  keyed = any and i <= added.ends
  if known[i] then
    name, card = cards.named(known[i])
  end
  if started ~= ARGV[at + 1] then
    what = 'gone'
  elseif not usual or publishing or keyed and (not name or cards.has(card, cards.keep)) then
    local payload = finish(working, id, tonumber(started), 'finished', '')
    if payload then
      announce(payload, '')
    else
      what, trouble = 'refused', 'WRONGTYPE the key of a process is of another type'
    end
  else
    over[#over + 1], lists[#lists + 1] = id, q.process .. id
    if name then
      ties[#ties + 1], ties[#ties + 2] = id, name
    end
  end
  if what then
    odd[#odd + 1], odd[#odd + 2] = i - 1, what
  end
  at = at + 2
end
if #over > 0 then
  redis.call('DEL', unpack(lists))
  redis.call('ZREM', working, unpack(over))
end
if #ties > 0 then
  redis.call('HDEL', q.entries, unpack(ties))
end
keyed = any

-- What the worker reports about the cancels that it knows: first which of the tasks that they
-- cover run, then that this list is complete.
local said = tonumber(ARGV[at])
if issued > token then
  said, seen = 0, 0
end
at = at + 1
for _ = 1, runs do
  local name, id = ARGV[at], ARGV[at + 1]
  at = at + 2
  local begun, canceled = redis.call('ZSCORE', working, id), canceling and redis.call('ZSCORE', q.canceled, name)
  if begun and canceled and tonumber(begun) <= tonumber(canceled) then
    redis.pcall('ZADD', q.stopping, 0, stopping_as(name, tonumber(begun), id))
  end
end
if canceling and said > 0 then
  redis.pcall('ZADD', q.holders, 'XX', 'GT', said, worker)
end

-- A worker that received a cancel message gets the cancel's token; 0 if there is no record,
-- because the sender of the message keeps none.
local recorded = {}
for i = 1, heard do
  local known = redis.pcall('HGET', q.cancel .. ARGV[at], 'token')
  recorded[i] = tonumber(known) or 0
  at = at + 1
end

-- Returned tasks start before waiting ones, so an unfinished return goes first.
local started, plain, wanted, again = {}, {}, #ARGV - at + 1, false
local open = true
if suspecting then
  open, again = returns.resume()
end
open = open and not paused
local filled = 0 -- fields of started, three for each task
local empty, moved, scores, prefix = false, 0, {}, {}
-- Nothing is prefetched while another worker could start it, or while there are crash counts:
-- everything that a dead worker held is suspected.
local first, final = at, #ARGV
local needed = wanted - ahead
if counting or idlers > 0 then
  final, wanted = final - ahead, needed
end
local prompt = #ARGV - ahead -- up to prompt, tasks run immediately; later ones are prefetched

-- What the step may still do, so that it stays short. A task of the list, and one that is passed over
-- or lost weigh 1; an entry, an added task, and one that becomes an entry, weigh HEAVY. The bytes are those
-- of payloads and cards that the step reads; the last task may exceed them. The worker limits the outcomes
-- of a round in the same way.
local weight, bytes, HEAVY = 512, BYTES, 4

local function spend(weighs, payload, card)
  weight, bytes = weight - weighs, bytes - #(payload or '') - #(card or '')
end

local function is_spent()
  return weight <= 0 or bytes <= 0
end

-- Reports whether the step may use the next id.
local function goes_on()
  return first <= final and not is_spent()
end

local skipped, before_it = 0, 0 -- passed over by this round, and by earlier ones

local starts = later(function(starts)
  function starts.tell(payload, given, entry, retries, crashes, due, card, text, value)
    local more = value or ''
    if (entry or crashes > 0) and not value then
      local story = ''
      if entry and not failed then -- in a failed queue: the failure
        local kind, reason, tries, deaths, who, when, from, planned = unpack(redis.call('HMGET', q.keyed .. entry,
          'kind', 'reason', 'tries', 'deaths', 'worker', 'at', 'from', 'planned'))
        story = { entry, payload, kind or '', reason or '', tries or '0', deaths or '0', who or '', when or '0', from or '', planned or '0' }
      end
      more = { entry or '', retries, crashes, story, due or 0, card or '', text or '', digests.are_of_key(entry, payload) and 1 or 0 }
    end
    local deadly = most > 0 and crashes >= most and #payload > BYTES
    started[filled + 1], started[filled + 2], started[filled + 3] = deadly and '' or payload, given, more
    filled = filled + 3
  end

  -- Passes over a task, leaving it to other workers. Its payload counts if it was read.
  function starts.pass(payload)
    skipped = skipped + 1
    spend(1, payload)
  end

  -- Reports whether to leave a task to other workers because it's one crash away from failing.
  -- Such tasks run one at a time, so that one that kills its worker doesn't take others down with it.
  -- With one more crash, a task no longer runs: the worker that gets it fails it.
  function starts.risky(crashes, payload)
    if crashes < math.max(most - 1, 1) or crashes >= most then
      return false
    end
    if solo then
      solo = false
      return false
    end
    starts.pass(payload)
    return true
  end

  function starts.one(payload, entry, retries, crashes, due, card, text, value)
    spend((entry or value) and HEAVY or 1, payload, card)
    if crashes > 0 then
      final = math.min(final, prompt) -- no prefetch, so that no other task is charged with its crash
    end
    token = token + 1
    scores[2 * (first - at) + 1], scores[2 * (first - at) + 2] = token, ARGV[first]
    first = first + 1
    starts.tell(payload, token, entry, retries, crashes, due, card, text, value)
  end

  -- Starts added tasks from the front of the stream. If there are tasks on the list, too, each
  -- kind gets half of the ids.
  function starts.added()
    local ids, listed = final - first + 1, redis.pcall('LLEN', q.waiting)
    listed = type(listed) == 'number' and listed or 0
    local stop = first + math.max(math.ceil((ids - token % 2) / 2), ids - listed)
    -- The list keeps half of the bytes, and the weight of as many tasks.
    local least, room = math.min(listed, weight / (HEAVY + 1)), listed > 0 and bytes / 2 or 0
    local taken, ties, page, next_one, count, from = {}, {}, nil, 1, 1, '-'
    while goes_on() and first < stop and weight > least and bytes > room do
      if not page or next_one > #page then
        if page and #page < count then
          break
        end
        if not from then
          break
        end
        count = math.min(page and added.next_page(page, count) or 1, stop - first)
        page, next_one = redis.call('XRANGE', q.added, from, '+', 'COUNT', count), 1
        if #page == 0 then
          break
        end
      end
      local id, pair = page[next_one][1], page[next_one][2]
      next_one, from = next_one + 1, added.past(id)
      local payload, process = pair[2], ARGV[first]
      local ms, seq, salt, card = cards.item(id, pair)
      local apart = ms and cards.has(card, cards.apart)
      local entry = apart and cards.entry(ms, seq, salt) -- other tasks start without one
      digests.forget()
      if apart then
        payload, card = redis.pcall('HGET', q.keyed .. entry, 'payload'), cards.with(card, cards.apart, false)
      end
      if type(payload) ~= 'string' then -- Redis has lost it
        taken[#taken + 1] = id
        spend(1)
      elseif apart then
        digests.name(payload, redis.sha1hex(entry))
        taken[#taken + 1] = id
        entry_started(entry, process, payload, 0, 0, worker, card)
        starts.one(payload, entry, 0, 0, ms, card)
      else
        redis.call('LPUSH', q.process .. process, payload)
        taken[#taken + 1] = id
        if ms then
          local name, value = 'a:' .. id .. '-' .. salt, 'a:' .. id .. '-' .. pair[1]
          ties[#ties + 1], ties[#ties + 2], ties[#ties + 3], ties[#ties + 4] = process, value, name, process .. ':' .. worker
          starts.one(payload, nil, 0, 0, ms, card, nil, value)
        else
          starts.one(payload, nil, 0, 0) -- another program has added it
        end
      end
    end
    if #ties > 0 then
      redis.call('HSET', q.entries, unpack(ties)) -- four per task, which is within unpack's limit
    end
    added.drop(taken)
    if #taken > 0 and listed > 0 then -- one task of the list may start, however large the last added one was
      weight, bytes = math.max(weight, 1), math.max(bytes, 1)
    end
  end
end)

if round <= last then
  -- A copy of the last round, or a round that the last has overtaken. It may be so late that
  -- nobody is waiting for its answer anymore: it reports what was started and starts nothing.
  for i = at, #ARGV do
    local before = redis.call('ZSCORE', working, ARGV[i])
    if before then
      local payload = redis.pcall('LINDEX', q.process .. ARGV[i], 0)
      local entry, tried, died, digest, card = entry_of(ARGV[i])
      if type(payload) ~= 'string' or entry == false then
        break -- it's lost, and the rest of the reply would be shifted
      end
      digests.name(payload, digest)
      if not is_key(entry) then
        died = crashes_of(payload)
      end
      local is = q.running[ARGV[i]]
      local text, took
      if entry and not is then
        text, took = unpack(redis.call('HMGET', q.keyed .. entry, 'error', 'took'))
      end
      starts.tell(payload, tonumber(before), entry, tried, died, number(took), card, text, is and is.value)
    end
  end
elseif open and wanted > 0 then
  -- Entries left to other workers stay at the head, so the next page begins behind them. If
  -- earlier rounds passed over some, this one continues behind them, unless entries were planned
  -- before them: then the last is further back, or the first is earlier. Passed entries aren't
  -- read again, except the first if the worker may start a risky task.
  if passed > 0 then
    local place = redis.call('ZRANK', q.schedule, passed_last)
    local head = redis.call('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')
    if place and place < passed and tonumber(head[2]) >= passed_first then
      before_it = place + 1
    end
  end
  local due, next_one, page_size = {}, 1, math.min(wanted, weight / HEAVY)
  local read -- how many entries were requested for the page
  while scheduled and goes_on() do
    if next_one > #due then
      if read and #due < 2 * read then
        break -- no more entries
      end
      local from = before_it + skipped
      if solo and before_it > 0 and not read then
        from, read, before_it = 0, 1, before_it - 1
      else
        read = page_size
      end
      due, next_one = redis.call('ZRANGE', q.schedule, from, from + read - 1, 'WITHSCORES'), 1
    end
    local entry, planned = due[next_one], tonumber(due[next_one + 1])
    if not entry or planned > now then
      break
    end
    next_one = next_one + 2
    local key = q.keyed .. entry
    local about = redis.pcall('HMGET', key, 'retries', 'crashes', 'digest', 'card', 'error', 'turn')
    local legible = not about.err
    if not legible then
      trouble, about = about.err, {}
    end
    local retries, crashes, card, text, turn = number(about[1]), number(about[2]), about[4], about[5], about[6]
    planned = turn and number(turn) or planned
    local digest = digests.is_kept(q, entry, about[3]) and about[3]
    local payload
    local function read()
      payload = payload or legible and redis.call('HGET', key, 'payload')
      digests.forget()
      digests.name(payload, digest)
    end
    -- The payload is read only to compute an unknown digest, or when the task starts.
    if not is_key(entry) then
      crashes = 0
      if digest then
        crashes = counting and died_of(digest) or 0
      elseif counting then
        read()
        crashes = payload and crashes_of(payload) or 0
      end
    end
    if crashes == 0 then
      read()
    end
    if not payload and (crashes == 0 or redis.call('HEXISTS', key, 'payload') == 0) then
      redis.call('ZREM', q.schedule, entry) -- Redis has lost it
      spend(1)
    elseif turn and courses.stays(entry, number(turn)) then
      spend(HEAVY)
    elseif crashes > 0 and first > prompt then
      final = first - 1 -- it isn't prefetched either
    elseif not starts.risky(crashes, payload) then
      read()
      local id = ARGV[first]
      entry_started(entry, id, payload, retries, crashes, worker, card, turn)
      starts.one(payload, entry, retries, crashes, planned, card, text)
      if turn then
        courses.pass(entry, number(turn))
        courses.follow(entry, true)
      end
    end
  end
  -- If few entries were passed over, the next round reads them again: by then, they may start.
  if scheduled then
    prefix = { 0, '', '0' }
    if before_it > 0 or skipped >= 50 or skipped > 0 and is_spent() then
      prefix[1] = before_it + skipped
    end
    if prefix[1] > 0 then
      prefix[2] = redis.call('ZRANGE', q.schedule, prefix[1] - 1, prefix[1] - 1)[1]
      prefix[3] = redis.call('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')[2]
    end
  end
  if adding then
    starts.added()
  end
  while goes_on() do
    local id = ARGV[first]
    local payload = redis.pcall('RPOPLPUSH', q.waiting, q.process .. id)
    if type(payload) ~= 'string' then
      empty = not payload
      trouble = payload and payload.err or trouble
      break
    end
    q.drift = q.drift - 1
    if not counting then -- most tasks start here
      weight, bytes, token = weight - 1, bytes - #payload, token + 1
      plain[#plain + 1] = payload
      scores[#scores + 1], scores[#scores + 2] = token, id
      first = first + 1
    else
      digests.forget()
      local crashes = crashes_of(payload)
      if starts.risky(crashes, payload) then
        moved = moved + 1 -- no process has an id with a suffix
        local entry, digest = string.format('r:%s.%03d', id, moved), digest_of(payload)
        digests.name(payload, digest)
        redis.call('DEL', q.process .. id)
        await(q, entry, payload, now, 0, 0)
        redis.call('HSET', q.keyed .. entry, 'digest', digest) -- so rounds pass over it without reading the payload
        plan(q, entry, now)
        spend(HEAVY)
      else
        starts.one(payload, nil, 0, crashes)
      end
    end
  end
  -- Redis stores a small zset as a list, which it scans for each look-up. Adding a long member and
  -- removing it again makes it a skip list until the set is empty.
  local long = #scores >= 48 and string.rep('-', 65)
  if long then
    redis.call('ZADD', working, 0, long)
  end
  if #scores > 0 then
    redis.call('ZADD', working, unpack(scores))
    redis.call('SET', q.token, token)
  end
  if long then
    redis.call('ZREM', working, long)
  end
end
q.drift = q.drift + #scores / 2
keep_drift()
local dropped = 0
if gave_up then
  dropped = failed and failures.keep(failed, keep) or failures.trim(q, ASIDE, keep)
end

-- If the worker begins to hold tasks, no cancel from before this round covers any of them.
if #scores > 0 then
  if not holds then
    redis.pcall('ZADD', q.holders, 'NX', token - #scores / 2, worker)
  end
  holds = true
else
  holds = redis.call('EXISTS', working) == 1
  if not holds then
    holds_nothing(worker)
  end
end
trim_log()

-- If too little could start, the worker waits to be woken, or keeps the time if no other worker
-- does. Otherwise there may be more to start: wake another worker, whose step ends like this one.
local rank, due = -1, -1
local more = not empty and open and redis.pcall('LLEN', q.waiting)
more = type(more) == 'number' and more > 0
if adding and open and not more then
  more = redis.call('XLEN', q.added) > 0
end
if scheduled and open and not more then
  more = redis.call('ZCOUNT', q.schedule, '-inf', now) > before_it + skipped
end
again = again or more and (round == last or first <= final and is_spent()) or moved > 0 and not empty
  or overtaken and filled / 3 < needed
if idle and filled / 3 + #plain < needed and not again then
  local score = now
  if scheduled and not kept() then
    score = now + CLOCK
    q.earlier, q.first = false, nil
    local next_ = redis.call('ZRANGEBYSCORE', q.schedule, '(' .. now, '(' .. ASIDE, 'WITHSCORES', 'LIMIT', 0, 1)
    if open and #next_ > 0 then
      due = math.min(math.max(tonumber(next_[2]) * 1000 - micros, 0), 3600000000)
    end
  end
  redis.pcall('ZADD', q.idle, score, worker)
  local place = redis.pcall('ZRANK', q.idle, worker)
  rank = type(place) == 'number' and place or -1
end
if more and idlers > 0 then
  wake(q.idle, q.wake, 1)
end
local keeper, someone = true, true
if scheduled then
  keeper, someone = kept()
end
if someone and (not keeper or earlier(q)) then
  ring(q)
end
if gave_up and failed then
  wake(failed.idle, failed.wake, failed.ready)
end

local cancels = {}
-- An overtaken round returns no cancels. The worker handles its answer before that of the
-- round that overtook it, and would report that it has nothing to stop before it knows what
-- that round has started. A worker that holds nothing needs no cancels either.
if canceling and not overtaken and not holds then
  seen = token
elseif canceling and not overtaken then
  local new = redis.call('ZRANGEBYSCORE', q.canceled, '(' .. seen, token, 'WITHSCORES', 'LIMIT', 0, 100)
  for i = 1, #new, 2 do
    cancels[#cancels + 1] = new[i]
    cancels[#cancels + 1] = tonumber(new[i + 1])
  end
  if #new == 200 then -- 100 and their scores
    again = true
  end
  if #new > 0 then
    seen = tonumber(new[#new])
  end
end
return { settled, odd, started, plain, token, cancels, seen, rank, more and -1 or idlers, again and 1 or 0, trouble, recorded, due, last, dropped,
  prefix, observed and 1 or 0, now }
