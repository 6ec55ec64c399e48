-- check: reports whether parts of a queue satisfy the invariants, at one moment. It repairs what keeps
-- tasks from starting: those that no worker returns, workers that nobody evicts, a token that is
-- behind, and times that can't be. Other damage is only reported. If a scan sees something odd in a
-- busy fleet, it runs this script to find out whether it's a real flaw.
--
-- KEYS[17] recurring zset  entry → until when it's asserted, ms
-- ARGV[6] mend     1: repair
-- ARGV[7] what     kind of the names: a key of judges below
-- ARGV[8] worker   that holds the processes; "" for all other kinds
-- ARGV[9] name    the first of one or more
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added, lib_settle, lib_return, lib_ages.
--
-- Returns {flaws, judged, retries}: an array of {kind, name, 1 if it was repaired, detail};
-- how many names were judged, counted from the first: all, unless returning their tasks takes too
-- long for one call; and how many of the judged entries wait for a retry.
local mend, what, worker = ARGV[6] == '1', ARGV[7], ARGV[8]
local at = 9
if broken then
  return broken
end
if mend then
  first_write()
end

local found, returned, retries, ended = {}, 0, 0, false
local function flaw(kind, name, mended, detail)
  found[#found + 1] = { kind, name, mended and 1 or 0, detail or '' }
end

local function disagree(name, detail)
  flaw('inconsistent', name, false, detail)
end

-- True if a worker with an unexpired lease serves the queue.
local longest = returns.longest()
local alive = redis.call('ZCOUNT', q.workers, now, '+inf') > returns.count_ahead(longest)

local function is_member(id)
  return redis.call('ZSCORE', q.workers, id)
end

-- Returns a score; nil if there is none, or the key has the wrong type.
local function score(key, member)
  local told = redis.pcall('ZSCORE', key, member)
  return type(told) == 'string' and tonumber(told) or nil
end

local function take_back(w)
  returned, ended = returned + returns.take_back({ w }), true
end

-- Reports whether a process has its list; nil if its key has the wrong type.
local function has_list(id)
  local length = redis.pcall('LLEN', q.process .. id)
  if type(length) == 'number' then
    return length > 0
  end
end

-- Reports whether a worker holds a process: a member, or a worker whose tasks are being returned.
local all
local function is_held(id)
  if not all then
    all = redis.call('ZRANGE', q.workers, 0, -1)
    for _, w in ipairs(redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0)) do
      all[#all + 1] = w
    end
  end
  for _, w in ipairs(all) do
    if score(q.working .. w, id) then
      return true
    end
  end
  return false
end

local judges = {}

-- A worker must hold each processing list. The token of an orphan is lost. It's returned with one
-- that no cancel covers: the task may run once too often, but isn't lost.
function judges.process(id)
  if has_list(id) and not is_held(id) then
    local above = math.max(last_token() or NEVER, 1) + 1
    local moved = mend and give_back(q.working, id, above, 0)
    returned, ended = returned + (moved and 1 or 0), true
    flaw('orphan', id, moved)
  end
end

-- A process that a worker holds must have its list.
function judges.held(id)
  if score(q.working .. worker, id) and has_list(id) == false then
    flaw('no-payload', id, false)
  end
end

-- At most one of two workers holds a process. The name is process:worker.
function judges.twice(name)
  local id, other = string.match(name, '^([^:]*):(.*)$')
  if score(q.working .. worker, id) and score(q.working .. other, id) then
    disagree(id, 'two workers hold the same attempt')
  end
end

-- A worker that holds something is a member, or its tasks are being returned. It's listed as a
-- holder, and its tokens were issued.
function judges.working(w)
  local held = redis.pcall('ZREVRANGE', q.working .. w, 0, 0, 'WITHSCORES')
  if #held == 0 then -- or an error reply
    return
  end
  local token, highest = last_token(), tonumber(held[2])
  if token and highest > token then
    if mend then
      redis.call('SET', q.token, highest)
      q.drift = q.drift + highest - token
    end
    flaw('token', w, mend)
  end
  if not redis.pcall('ZSCORE', q.holders, w) then -- an error reply is a table
    disagree(w, 'a worker holds tasks, and holders lacks it')
  end
  if not is_member(w) and (score(q.suspects, w) or 1) > 0 then
    if mend then
      redis.call('ZADD', q.suspects, -1, w) -- not 0: it's unknown whether it died
      take_back(w)
    end
    flaw('orphan', w, mend)
  end
end

-- A member with an unexpired lease evicts members whose lease has expired. If there is none, this
-- evicts them. It also evicts members whose deadline is ahead. The name is deadline:worker: a worker
-- is evicted only if it still has that deadline, so it has sent no heartbeat since the scan.
function judges.member(name)
  local before, w = string.match(name, '^(%d*):(.*)$')
  local deadline = is_member(w)
  if deadline and (not alive or returns.is_ahead(deadline, longest)) then
    local judged = mend and deadline == before
    if judged then
      returns.fence({ w }, 0)
      take_back(w)
    end
    flaw('expired-worker', w, judged, deadline)
  end
end

-- A suspect is a member, or a live worker is returning its tasks.
function judges.suspect(w)
  local mark = score(q.suspects, w)
  if mark and mark > 0 and not is_member(w) then
    disagree(w, 'a worker that is gone is in suspects')
  elseif mark and mark <= 0 and not alive then
    if mend then
      take_back(w)
    end
    flaw('expired-worker', w, mend)
  end
end

function judges.idle(w)
  if score(q.idle, w) and not is_member(w) then
    disagree(w, 'a worker that is gone is in idle')
  end
end

-- A listed holder holds something, or is a member whose next heartbeat can correct the list.
function judges.holder(w)
  if score(q.holders, w) and redis.call('EXISTS', q.working .. w) == 0 and not is_member(w) then
    disagree(w, 'a worker that is gone is in holders')
  end
end

-- A field of entries: the process exists, and what runs names it. If a worker holds the
-- process without a list, the field stays until the worker ends it.
function judges.running(id)
  local stored = redis.call('HGET', q.entries, id)
  local name = stored and cards.read(stored)
  local agrees, exists = true, has_list(id) ~= false or is_held(id)
  if not stored then
    return
  elseif name then -- an added task, which has a field with its name, too
    local back = redis.call('HGET', q.entries, name)
    agrees = exists and back and string.match(back, '^([^:]*):.*$') == id
  elseif string.sub(id, 1, 2) == 'a:' then
    local process = string.match(stored, '^([^:]*):.*$')
    local back = process and redis.call('HGET', q.entries, process)
    agrees = back and cards.read(back) == id
  else
    local runs = redis.pcall('HGET', q.keyed .. stored, 'process')
    agrees = exists and (type(runs) == 'table' or runs == id)
  end
  if not agrees then
    disagree(id, 'entries has an attempt that is gone')
  end
end

-- An entry waits, runs, or both. It's planned if and only if it doesn't run.
function judges.entry(entry)
  local key = q.keyed .. entry
  local fields = redis.pcall('HMGET', key, 'due', 'process')
  if fields.err or redis.call('EXISTS', key) == 0 then
    return
  end
  local due, process = unpack(fields)
  local waits = redis.call('HEXISTS', key, 'payload') == 1
  if waits and not due and not process and added.waits(entry) then
    return -- its item is in the stream
  end
  local planned = redis.call('ZSCORE', q.schedule, entry)
  local wrong = not waits and not process or waits and not tonumber(due)
  if process then
    wrong = wrong or planned or redis.call('HGET', q.entries, process) ~= entry
  else
    wrong = wrong or tonumber(planned) ~= tonumber(due)
  end
  if wrong then
    disagree(entry, 'the entry of a task disagrees with schedule or entries')
  end
end

-- Each member of schedule has an entry.
function judges.scheduled(entry)
  local tried = redis.pcall('HGET', q.keyed .. entry, 'retries')
  if type(tried) == 'table' or not redis.call('ZSCORE', q.schedule, entry) then
    return
  elseif number(tried) > 0 then
    retries = retries + 1
  elseif redis.call('EXISTS', q.keyed .. entry) == 0 then
    disagree(entry, 'schedule has an entry that is gone')
  end
end

-- Each member of contents stands for a waiting task.
function judges.content(member)
  local entry = string.sub(member, 42)
  if score(q.contents, member) and redis.pcall('HEXISTS', q.keyed .. entry, 'payload') == 0 then
    disagree(entry, 'contents has an entry that is gone')
  end
end

-- An added task in the stream has its payload. Items of other programs have no names, and run, too.
function judges.added(id)
  local item = redis.pcall('XRANGE', q.added, id, id)[1] -- nil for an error reply
  local ms, seq, salt, card
  if item then
    ms, seq, salt, card = cards.item(item[1], item[2])
  end
  if ms and cards.has(card, cards.apart) and redis.pcall('HEXISTS', q.keyed .. cards.entry(ms, seq, salt), 'payload') == 0 then
    flaw('no-payload', id, false)
  end
end

-- A cancel in the log may cover something that a worker holds, and its token was issued.
function judges.canceled(name)
  local canceled = score(q.canceled, name)
  if canceled and canceled > math.max(last_token() or NEVER, 1) then
    disagree(name, 'a cancel has a token that was never issued')
  elseif canceled and redis.call('EXISTS', q.holders) == 0 then
    disagree(name, 'a cancel waits for workers that are gone')
  end
end

-- Each schedule has a member in recurring, and the reverse. If Redis's clock was ahead, a schedule is
-- asserted until too late, or its occurrences up to a time that is still to come count as started: it
-- wouldn't end, or occur, before that. The repair clears its print, so that a peer with the schedule
-- asserts it in full again.
function judges.recurring(entry)
  local key = courses.key(entry)
  local known = redis.pcall('HMGET', key, 'times', 'passed')
  local till = redis.pcall('ZSCORE', KEYS[17], entry)
  if known.err or type(till) == 'table' then
    return
  end
  local passed = tonumber(known[2])
  if not till and redis.call('EXISTS', key) == 0 then
    return
  elseif not till or not known[1] or not passed then
    return disagree(entry, 'the record of a recurring task is incomplete')
  end
  local late = courses.is_ahead(key, passed)
  if not late and tonumber(till) <= now + courses.longest then
    return
  end
  if mend then
    redis.call('ZADD', KEYS[17], now, entry)
    redis.call('HSET', key, 'print', '', 'passed', late and now or passed, 'since', 0, 'more', 0)
  end
  flaw('recurring', entry, mend)
end

-- The queue as a whole.
function judges.queue(name)
  if not last_token() then
    flaw('token', name, false)
  end
  local length = redis.pcall('LLEN', q.waiting)
  if type(length) ~= 'number' then
    return
  end
  local ready = length + redis.call('ZCOUNT', q.schedule, '-inf', now) + (adding and redis.call('XLEN', q.added) or 0)
  if ready > 0 and paused then
    flaw('paused', name, false, tostring(ready))
  end
  if ready > 0 and not alive then
    flaw('no-worker', name, false, tostring(ready))
  end
end

local judged = 0
while at + judged <= #ARGV and math.max(carried, digests.hashed) < BYTES do
  judges[what](ARGV[at + judged])
  judged = judged + 1
end
if mend then
  keep_drift()
  if ended then
    trim_log()
  end
  alert(q, returned)
end
return { found, judged, retries }
