-- step: one round of a worker with a queue. Settle processes, then start some:
-- first what is due in the second lane, then the list.
--
-- ARGV[6]  worker    id
-- ARGV[7]  round     rises by one; the same again tells of the last, and so does the one
--                    before it, which may be under way beside it; an older one is refused
-- ARGV[8]  lease     ms until it lapses; 0 never
-- ARGV[9]  seen      token of the last cancel that the worker has been told of
-- ARGV[10] idle      1: when it comes back short, the worker waits to be woken
-- ARGV[11] crashes   as many dead workers, and a task fails instead of starting; 0: never
-- ARGV[12] solo      1: may start one task whose next death would be its last
-- ARGV[13] keep      how many failed tasks; 0: all, since somebody works on them. In a
--                    failed queue, how many that were given up
-- ARGV[14] head      of the keys of the failed queue; "": this is one
-- ARGV[15] tail      likewise
-- ARGV[16] bury      channel prefix to wake its workers
-- ARGV[17] done      channel told of each finished task
-- ARGV[18] outcomes  how many; each: process, token, verb and a word of its own
--                    finish: "=" and the result, or ""; drop: canceled, no event;
--                    stop: to the front; retry: in so many ms; fail: kind:reason
-- ARGV[19] entries   how many of them, the first ones, may be of the second lane
-- ARGV[20] ends      how many of the list that finish without a result; each: process, token
-- ARGV[21] acks      how many; each: name, token of a cancel of which nothing is left
-- ARGV[22] heard     how many; each: digest of which a cancel message came
-- ARGV[23] ahead     how many of the starts, the last ones, are more than the worker can begin
--                    at once: for these, nobody else may be idle
-- ARGV[24] the outcomes, the ends, the acks, the heard, then the ids of the processes to start
-- Uses lib_queue, lib_wake, lib_entry, lib_settle, lib_return, lib_failed.
--
-- Returns {outcomes, odd, told, plain, token, cancels, seen, idle rank, hungry,
-- again, trouble, recorded, due, buried, last}: per outcome ok, canceled (it was to go
-- back, and a cancel had come), gone (it was settled before) or refused (a key is
-- of another type); place and the same word of each end that was not ok; per
-- started task of which there may be more to tell payload, token and {entry or
-- "", retries, crashes, what the failed queue knows} or ""; the payloads of those
-- started after them, and the token of the last; per new cancel name and token;
-- the last cancel told of; the place among the idle workers or -1; how many others
-- are idle though nothing is left for them; 1 when the next round should follow at once; why nothing could be
-- started; per digest heard the token of its cancel; μs until the worker is to
-- look, an hour at most, or -1; how many tasks failed because workers had died
-- holding them; and the round before, which is older than the worker knows if Redis
-- has lost writes.
-- Fails with EVICTED when the worker is no member.
local worker, round, lease = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local seen, idle = tonumber(ARGV[9]), ARGV[10] == '1'
local most, solo, keep, done = tonumber(ARGV[11]), ARGV[12] == '1', tonumber(ARGV[13]), ARGV[17]
local outcomes, entries, ends = tonumber(ARGV[18]), tonumber(ARGV[19]), tonumber(ARGV[20])
local acks, heard, ahead = tonumber(ARGV[21]), tonumber(ARGV[22]), tonumber(ARGV[23])
local failed = ARGV[14] ~= '' and failed_queue(ARGV[14], ARGV[15], ARGV[16])
local working = q.working .. worker
local at = 24

-- All checks first: Redis does not roll back.
if not redis.call('ZSCORE', q.workers, worker) then
  return redis.error_reply('EVICTED the worker is no member of the queue')
end
local last = tonumber(redis.call('HGET', q.rounds, worker)) or 0
if round < last - 1 then
  return redis.error_reply('STALE later rounds have been answered')
end
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
if broken then
  return broken
end

-- The ids of a page of ends, from a place on, and their scores.
local PAGE = 1000 -- unpack has a limit
local function ends_from(place, count)
  local ids = {}
  for i = 1, math.min(count, PAGE) do
    ids[i] = ARGV[place + 2 * i - 2]
  end
  return ids, redis.call('ZMSCORE', working, unpack(ids))
end

-- What the worker holds is the last check, by a command that is needed anyway: what
-- is settled first is looked up.
local score, page, held
if outcomes > 0 then
  score = redis.call('ZSCORE', working, ARGV[at])
elseif ends > 0 then
  page, held = ends_from(at, ends)
else
  redis.call('ZCARD', working)
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

-- Tell observers of a finished task, or, where nobody hears of the first one, not
-- of the others either.
local heeded = true
local function announce(payload, result)
  if heeded then
    local reached = redis.pcall('PUBLISH', done, cjson.encode({ workerId = worker, task = payload, result = result }))
    heeded = type(reached) == 'number' and reached > 0
  end
end

-- What has failed in a failed queue is put aside there, as an entry that is
-- never due.
local function put_aside(entry, payload, retries, crashes)
  await(q, entry, payload, ASIDE + now, retries, crashes)
  plan(q, entry, ASIDE + now)
  trim(q, ASIDE, keep)
end

-- The task of a process goes to the failed queue, or aside. True, or false and
-- nil as in give_back.
local function give_up(id, started, kind, reason)
  if failed and not buries(failed) then
    return nil
  end
  local payload, entry, tried, died = take_out(id)
  if payload == nil then
    return nil
  end
  if not payload or count_canceled(payload, entry, started, 'stopped') then
    remove(working, id, payload, entry)
    return false
  end
  if not is_key(entry) then
    died = crashes_of(payload)
    forget_crashes(payload)
  end
  if failed then
    bury(failed, keep, worker, id,
      { payload = payload, entry = entry, retries = tried, crashes = died, kind = kind, reason = reason })
    remove(working, id, payload, entry)
  elseif entry then
    redis.call('ZREM', working, id)
    entry_returned(entry, id, payload, ASIDE + now, tried, died)
    trim(q, ASIDE, keep)
  else
    remove(working, id, payload, nil)
    put_aside('r:' .. id, payload, tried, died)
  end
  return true
end

local settled, trouble = {}, ''
local any = keyed
for i = 1, outcomes do
  keyed = any and i <= entries -- so that plain ones cost nothing more
  local id, started, verb, word = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  at = at + 4
  if i > 1 then
    score = redis.call('ZSCORE', working, id)
  end
  if tonumber(score) ~= started then
    settled[i] = 'gone'
  elseif verb == 'finish' or verb == 'drop' then
    local payload = finish(working, id, started, verb == 'finish' and 'finished' or 'stopped')
    settled[i] = payload and 'ok' or 'refused'
    if payload and verb == 'finish' then
      announce(payload, word ~= '' and string.sub(word, 2) or nil)
    end
  else
    local moved
    if verb == 'stop' then
      moved = give_back(working, id, started, 0)
    elseif verb == 'retry' then
      moved = put_off(working, id, started, tonumber(word))
    else
      local kind, reason = string.match(word, '^(%a+):(.*)$')
      moved = give_up(id, started, kind, reason)
    end
    settled[i] = moved and 'ok' or moved == false and 'canceled' or 'refused'
  end
  if settled[i] == 'refused' then
    trouble = 'WRONGTYPE a key of the queue or of the process is of another type'
  end
end

-- The ends: most of what a busy worker has to say. They are no entries, and where
-- there is nothing else to see to, few commands do for all.
keyed = false
local odd, over, lists = {}, {}, {}
for i = 1, ends, PAGE do
  if not page then
    page, held = ends_from(at, ends - i + 1)
  end
  for j, started in ipairs(held) do
    local id, what = page[j], nil
    if started ~= ARGV[at + 2 * j - 1] then
      what = 'gone'
    elseif canceling or counting or offset or heeded then
      local payload = finish(working, id, tonumber(started), 'finished')
      if payload then
        announce(payload, nil)
      else
        what, trouble = 'refused', 'WRONGTYPE the key of a process is of another type'
      end
    else
      over[#over + 1], lists[#lists + 1] = id, q.process .. id
    end
    if what then
      odd[#odd + 1], odd[#odd + 2] = i + j - 2, what
    end
  end
  if #over > 0 then
    redis.call('DEL', unpack(lists))
    redis.call('ZREM', working, unpack(over))
    over, lists = {}, {}
  end
  at, page = at + 2 * #page, nil
end
keyed = any

for _ = 1, acks do
  local name, canceled = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  local known = redis.pcall('HGET', q.cancel .. name, 'token')
  if tonumber(known) == canceled then
    acknowledge(name, worker)
  end
end

-- Who heard of a cancel is told its token; 0 when it is not on record, because it
-- comes from somebody who keeps none.
local recorded = {}
for i = 1, heard do
  local known = redis.pcall('HGET', q.cancel .. ARGV[at], 'token')
  recorded[i] = tonumber(known) or 0
  at = at + 1
end

-- Returned tasks start before waiting ones, so a return under way goes first.
local started, plain, wanted, again = {}, {}, #ARGV - at + 1, false
local open = true
if suspecting then
  open, again = resume_return(AT_ONCE)
end
open = open and not paused
local told = 0
local function tell(payload, given, entry, retries, crashes)
  local more = ''
  if entry or crashes and crashes > 0 then
    local story = ''
    if entry and not failed then -- what the failure was
      local kind, reason, tries, deaths, who, when, from = unpack(redis.call('HMGET', q.keyed .. entry,
        'kind', 'reason', 'tries', 'deaths', 'worker', 'at', 'from'))
      story = { entry, payload, kind or '', reason or '', tries or '0', deaths or '0', who or '', when or '0', from or '' }
    end
    more = { entry or '', retries, crashes, story }
  end
  started[told + 1], started[told + 2], started[told + 3] = payload, given, more
  told = told + 3
end

local empty, buried, moved, scores = false, 0, 0, {}
-- The ids are for starts, so that the worker knows which is which. All else gets
-- ids made of the last one, which then no process has: in its order, as ids are.
-- Nothing is started ahead while somebody else could begin it, nor while workers
-- die: all that one holds is suspected.
local first, final, others = at, #ARGV, 0
local needed = wanted - ahead
if counting or idlers > 0 then
  final, wanted = final - ahead, needed
end
local function other_id()
  if final == #ARGV then
    final = final - 1
  end
  others = others + 1
  return string.format('%s.%03d', ARGV[#ARGV], others)
end

-- A task that one more death would bury starts only where no other such task
-- runs: so what merely ran beside one that kills its worker is told from it.
-- Whether this one is to be left to others.
local skipped = 0
local function risky(crashes)
  if most == 0 or crashes < math.max(most - 1, 1) or crashes >= most and (not failed or buries(failed)) then
    return false
  end
  if solo then
    solo = false
    return false
  end
  skipped = skipped + 1
  return true
end

-- Whether too many workers have died holding it: then it goes to the failed
-- queue instead.
local function deadly(payload, entry, retries, crashes)
  if most == 0 or crashes < most then
    return false
  end
  if failed and not buries(failed) then
    trouble = 'WRONGTYPE a key of the failed queue is of another type'
    return false
  end
  local id, reason = other_id(), crashes .. ' workers died holding it'
  if failed then
    bury(failed, keep, worker, id,
      { payload = payload, entry = entry, retries = retries, crashes = crashes, kind = 'crashed', reason = reason })
  else -- of the list: entries of a failed queue are put aside under their names
    put_aside('r:' .. id, payload, retries, crashes)
  end
  buried = buried + 1
  return true
end

local function start(payload, entry, retries, crashes)
  if crashes and crashes > 0 then
    final = math.min(final, #ARGV - ahead) -- nothing waits beside it to be accused
  end
  token = token + 1
  scores[2 * (first - at) + 1], scores[2 * (first - at) + 2] = token, ARGV[first]
  first = first + 1
  tell(payload, token, entry, retries, crashes)
end

if round <= last then
  -- A copy of the last round, or the one that the last has overtaken: it may come
  -- late, when nobody waits for its answer any more, so it tells what was started
  -- and starts nothing.
  for i = at, #ARGV do
    local before = redis.call('ZSCORE', working, ARGV[i])
    if before then
      local payload = redis.pcall('LINDEX', q.process .. ARGV[i], 0)
      local entry, tried, died = entry_of(ARGV[i])
      if type(payload) ~= 'string' or entry == false then
        break -- it is lost, and the others would not be in their places
      end
      if not is_key(entry) then
        died = crashes_of(payload)
      end
      tell(payload, tonumber(before), entry, tried, died)
    end
  end
elseif open and wanted > 0 then
  -- What is left to others stays at the head, so the next page begins behind it;
  -- after 200 of them it is another page in each round.
  local due, next_one, read, last_page, cleared = {}, 1, false, false, 0
  while scheduled and first <= final and others < 999 and cleared < 500 do
    if next_one > #due then
      if last_page or read and #due < wanted then
        break -- that was all
      end
      local from, size_ = skipped, wanted
      if skipped >= 200 then
        local behind = redis.call('ZCOUNT', q.schedule, '-inf', now) - skipped
        if behind <= 0 then
          break
        end
        from, size_, last_page = skipped + round * 100 % behind, 100, true
      end
      due, next_one, read = redis.call('ZRANGEBYSCORE', q.schedule, '-inf', now, 'LIMIT', from, size_), 1, true
      if #due == 0 then
        break
      end
    end
    local entry = due[next_one]
    next_one = next_one + 1
    local key = q.keyed .. entry
    local waits = redis.pcall('HMGET', key, 'payload', 'retries', 'crashes')
    if waits.err then
      trouble, waits = waits.err, {}
    end
    local payload, retries, crashes = waits[1], number(waits[2]), number(waits[3])
    if payload and not is_key(entry) then
      crashes = crashes_of(payload)
    end
    if not payload then
      redis.call('ZREM', q.schedule, entry) -- Redis has lost it
      cleared = cleared + 1
    elseif not failed and most > 0 and crashes >= most then
      put_aside(entry, payload, retries, crashes)
      cleared = cleared + 1
    elseif crashes > 0 and first > #ARGV - ahead then
      final = first - 1 -- nor does it wait beside others
    elseif not risky(crashes) then
      if deadly(payload, entry, retries, crashes) then
        unwait(q, entry)
        if not is_key(entry) then
          forget_crashes(payload)
          lock_moved(payload, 'e:' .. entry, nil)
        end
      else
        local id = ARGV[first]
        entry_started(entry, id, payload, retries, crashes)
        lock_moved(payload, 'e:' .. entry, 'p:' .. id)
        start(payload, entry, retries, crashes)
      end
    end
  end
  if not counting and not offset then
    -- Nothing to see to but the payloads.
    local before, last_score = first - 1, 2 * (first - at)
    while first <= final do
      local id = ARGV[first]
      local payload = redis.pcall('RPOPLPUSH', q.waiting, q.process .. id)
      if type(payload) ~= 'string' then
        empty = not payload
        trouble = payload and (payload.err or 'the queue cannot be read') or trouble
        break
      end
      token = token + 1
      plain[first - before] = payload
      scores[last_score + 1], scores[last_score + 2] = token, id
      first, last_score = first + 1, last_score + 2
    end
    final = 0
  end
  while first <= final and others < 999 do
    local id = ARGV[first]
    local payload = redis.pcall('RPOPLPUSH', q.waiting, q.process .. id)
    if type(payload) == 'table' then
      trouble = payload.err or 'the queue cannot be read'
      break
    end
    if not payload then
      empty = true
      break
    end
    local crashes = counting and crashes_of(payload) or 0
    if offset then
      lock_taken(payload, id)
    end
    if crashes == 0 then
      start(payload)
    elseif risky(crashes) then
      local entry = 'r:' .. other_id()
      redis.call('DEL', q.process .. id)
      lock_moved(payload, 'p:' .. id, 'e:' .. entry)
      await(q, entry, payload, now, 0, 0)
      plan(q, entry, now)
      moved = moved + 1
    elseif deadly(payload, nil, 0, crashes) then
      redis.call('DEL', q.process .. id)
      forget_crashes(payload)
      lock_moved(payload, 'p:' .. id, nil)
    else
      start(payload, nil, 0, crashes)
    end
  end
  for i = 1, #scores, 2 * PAGE do
    redis.call('ZADD', working, unpack(scores, i, math.min(i + 2 * PAGE - 1, #scores)))
  end
  if #scores > 0 then
    redis.call('SET', q.token, token)
  end
end
keep_offset()

-- Come back short: wait to be woken, or keep the time if nobody does. Otherwise
-- there may be more: let another one have it, which does the same.
local rank, due = -1, -1
local more = not empty and open and redis.pcall('LLEN', q.waiting)
more = type(more) == 'number' and more > 0
if scheduled and open and not more then
  more = skipped < 200 and redis.call('ZCOUNT', q.schedule, '-inf', now) > skipped
end
again = again or more and round == last or open and buried + moved > 0 and not empty
  or overtaken and told / 3 < needed
if idle and told / 3 + #plain < needed and not again then
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
if failed and failed.ready then
  wake(failed.idle, failed.wake, failed.ready)
end

local cancels = {}
if seen > token then
  seen = 0 -- Redis has lost writes
end
-- A round that was overtaken tells of none: the worker takes in its answer before that
-- of the round that overtook it, and would say that it has nothing left to stop while
-- it does not know yet what that one has started.
if canceling and not overtaken then
  local new = redis.call('ZRANGEBYSCORE', q.canceled, '(' .. seen, '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
  for i = 1, #new, 2 do
    if redis.pcall('HEXISTS', q.cancel .. new[i], 'w:' .. worker) == 1 then
      cancels[#cancels + 1] = new[i]
      cancels[#cancels + 1] = tonumber(new[i + 1])
    end
  end
  if #new == 200 then -- 100 and their scores
    again = true
  end
  if #new > 0 then
    seen = tonumber(new[#new])
  end
end
return { settled, odd, started, plain, token, cancels, seen, rank, more and 0 or idlers, again and 1 or 0, trouble, recorded, due, buried, last }
