-- check: reports whether parts of a queue satisfy the invariants, at one moment, and
-- repairs what can be repaired without losing a task. If a scan sees something odd in a busy
-- fleet, it runs this script to find out whether it's a real flaw.
--
-- KEYS[17] recurring zset  entry → until when it's asserted, ms
-- ARGV[6] mend     1: repair
-- ARGV[7] what     kind of the names: a key of judges below
-- ARGV[8] worker   that holds the processes; "" for all other kinds
-- ARGV[9] name    the first of one or more
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added, lib_settle, lib_return, lib_ages.
--
-- Returns {flaws, judged, retries}: an array of {kind, name, 1 if it was repaired, detail};
-- how many names were judged, counted from the first: all, unless reading their payloads takes too
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

-- True if a worker with an unexpired lease serves the queue.
local longest = returns.longest()
local alive = redis.call('ZCOUNT', q.workers, now, '+inf') > returns.count_ahead(longest)

local function is_member(id)
  return redis.call('ZSCORE', q.workers, id)
end

local function is_returning(id)
  return tonumber(redis.call('ZSCORE', q.suspects, id) or 1) <= 0
end

-- Bytes of payloads that a call reads or hashes before it leaves the other names to the next call.
local BYTES = 1048576
local function digest(payload)
  carried = carried + #payload
  return digest_of(payload)
end

-- Reports whether a process has its list; nil if its key has the wrong type.
local function has_list(id)
  local length = redis.pcall('LLEN', q.process .. id)
  if type(length) == 'number' then
    return length > 0
  end
end

-- Reports whether a process runs a payload with this digest; nil if its key has the wrong type.
local function runs_at(id, named)
  local there = has_list(id)
  return there and digest(redis.call('LINDEX', q.process .. id, 0)) == named
end

-- Returns the workers that hold processes: members, and workers whose tasks are being returned.
local function holders()
  local found = {}
  for _, members in ipairs({
    redis.call('ZRANGE', q.workers, 0, -1),
    redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0),
  }) do
    for _, worker in ipairs(members) do
      if redis.call('EXISTS', q.working .. worker) == 1 then
        found[#found + 1] = worker
      end
    end
  end
  return found
end

-- Returns the worker that holds a process, or nil.
local all
local function holder(id)
  all = all or holders()
  for _, w in ipairs(all) do
    if type(redis.pcall('ZSCORE', q.working .. w, id)) == 'string' then
      return w
    end
  end
end

-- Returns a field of an entry; nil if its key has the wrong type.
local function field(entry, name)
  local value = redis.pcall('HGET', q.keyed .. entry, name)
  if type(value) == 'table' then
    return nil
  end
  return value
end

-- Returns the digest of the task that waits in an entry; false if none does, nil if its key has
-- the wrong type. A task known only by its key has the digest of the name of its entry; after it
-- has failed, of the name that its entry had.
local function digest_in(entry)
  local key = q.keyed .. entry
  local told = redis.pcall('HMGET', key, 'digest', 'from')
  if told.err then
    return nil
  end
  local named, from = unpack(told)
  local known = named == redis.sha1hex(entry)
    or from and (named == redis.sha1hex(from) or named == redis.sha1hex((string.gsub(from, '@%d+$', ''))))
  if known and digests.is_kept(q, entry, named) then
    return named
  end
  local payload = redis.call('HGET', key, 'payload')
  return payload and digest(payload)
end

-- Ends the running part of an entry whose process no longer exists. If the task that waited for
-- that process has no due time, it's due now: otherwise it would be lost.
local function end_entry(entry, id)
  if redis.pcall('HEXISTS', q.keyed .. entry, 'payload') == 1 and not tonumber(field(entry, 'due')) then
    redis.call('HSET', q.keyed .. entry, 'due', now)
  end
  entry_ended(entry, id)
end

local judges = {}

-- A worker must hold each processing list. The token of an orphan is lost. It's returned with one
-- that no cancel covers: the task may run once too often, but isn't lost.
function judges.process(id)
  if has_list(id) and not holder(id) then
    local above = math.max(last_token() or NEVER, 1) + 1
    local moved = mend and give_back(q.working, id, above, 0)
    returned, ended = returned + (moved and 1 or 0), true
    flaw('orphan', id, moved)
  end
end

-- A process that a worker holds must have its list.
function judges.held(id)
  if redis.call('ZSCORE', q.working .. worker, id) and has_list(id) == false then
    flaw('no-payload', id, false)
  end
end

-- At most one of two workers holds a process. The name is process:worker. The later
-- start wins, unless only the other worker is a member.
function judges.twice(name)
  local id, other = string.match(name, '^([^:]*):(.*)$')
  local a = tonumber(redis.pcall('ZSCORE', q.working .. worker, id)) -- nil for an error reply
  local b = tonumber(redis.pcall('ZSCORE', q.working .. other, id))
  if a and b then
    local goes = a < b and worker or other
    if not is_member(worker) ~= not is_member(other) then
      goes = is_member(worker) and other or worker
    end
    if mend then
      redis.call('ZREM', q.working .. goes, id)
      if redis.call('EXISTS', q.working .. goes) == 0 then
        holds_nothing(goes)
      end
    end
    flaw('two-owners', id, mend, goes)
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
    if mend then
      redis.call('ZADD', q.holders, 0, w) -- what it has reported is unknown
    end
    flaw('cancel', w, mend)
  end
  if not is_member(w) and not is_returning(w) then
    if mend then
      redis.call('ZADD', q.suspects, -1, w) -- not 0: it's unknown whether it died
      returned, ended = returned + returns.take_back({ w }), true
    end
    flaw('non-member', w, mend)
  end
end

-- A member with an unexpired lease evicts members whose lease has expired. If there is none, this
-- evicts them. It also evicts members whose deadline is ahead. The name is deadline:worker: a worker is evicted only if it still has that deadline,
-- so it has sent no heartbeat since the scan.
function judges.member(name)
  local before, w = string.match(name, '^(%d*):(.*)$')
  local deadline = is_member(w)
  if deadline and (not alive or returns.is_ahead(deadline, longest)) then
    local judged = mend and deadline == before
    if judged then
      returns.fence({ w }, 0)
      returned, ended = returned + returns.take_back({ w }), true
    end
    flaw('expired-worker', w, judged, deadline)
  end
end

-- A suspect is a member, or a live worker is returning its tasks.
function judges.suspect(w)
  local mark = tonumber(redis.call('ZSCORE', q.suspects, w))
  if mark and mark > 0 and not is_member(w) then
    if mend then
      redis.call('ZREM', q.suspects, w)
    end
    flaw('leftover', w, mend)
  elseif mark and mark <= 0 and not alive then
    if mend then
      returned, ended = returned + returns.take_back({ w }), true
    end
    flaw('unfinished-return', w, mend)
  end
end

function judges.idle(w)
  if type(redis.pcall('ZSCORE', q.idle, w)) == 'string' and not is_member(w) then
    if mend then
      redis.call('ZREM', q.idle, w)
    end
    flaw('leftover', w, mend)
  end
end

function judges.round(w)
  local others = redis.call('HLEN', q.rounds) - redis.call('HEXISTS', q.rounds, 'fence') - redis.call('HEXISTS', q.rounds, 'lease')
  local stays = (w == 'fence' or w == 'lease') and others > 0 or is_member(w)
  if redis.call('HEXISTS', q.rounds, w) == 1 and not stays then
    if mend then
      redis.call('HDEL', q.rounds, w)
      returns.end_joins()
    end
    flaw('leftover', w, mend)
  end
end

-- The two fields of a running added task name each other, and its process exists.
local function judge_running_added(id, stored, name)
  local process = name and id or string.match(stored or '', '^([^:]*):.*$')
  local back = process and redis.call('HGET', q.entries, name or process)
  local listed = process and has_list(process)
  if not stored or process and listed == nil then
    return
  end
  if name then
    local runs = back and string.match(back, '^([^:]*):.*$') == id
    if runs and (listed or holder(id)) then
      return
    end
    if mend and (listed or holder(id)) then
      redis.call('HSET', q.entries, name, id .. ':' .. (holder(id) or ''))
    elseif mend then
      redis.call('HDEL', q.entries, id)
    end
  else
    if back and cards.read(back) == id then
      return
    end
    if mend then
      redis.call('HDEL', q.entries, id)
    end
  end
  flaw('schedule', id, mend)
end

-- A field of entries: the process exists, and the entry names it. If a worker holds the
-- process without a list, the field stays until the worker ends it.
function judges.running(id)
  local entry = redis.call('HGET', q.entries, id)
  local name = cards.read(entry or '')
  if name or string.sub(id, 1, 2) == 'a:' then
    return judge_running_added(id, entry, name)
  end
  local listed, runs = has_list(id), entry and field(entry, 'process')
  if not entry or listed == nil or runs == nil or runs == id and (listed or holder(id)) then
    return
  end
  if mend and listed and not runs then -- Redis has lost the entry
    redis.call('HSET', q.keyed .. entry, 'process', id, 'tried', 0, 'died', 0)
    redis.call('ZREM', q.schedule, entry)
  elseif mend and runs == id then
    end_entry(entry, id)
  elseif mend then
    redis.call('HDEL', q.entries, id)
  end
  flaw('schedule', id, mend)
end

-- An entry: schedule, contents and entries agree with it.
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
  local wrong, mended = not waits and not process, mend
  if wrong and mend then
    redis.call('DEL', key)
    redis.call('ZREM', q.schedule, entry)
  end
  if waits and not tonumber(due) then
    wrong, due = true, redis.call('ZSCORE', q.schedule, entry) or now
    if mend then
      redis.call('HSET', key, 'due', due)
    end
  end
  if process and redis.call('HGET', q.entries, process) ~= entry then
    wrong = true
    local runs = has_list(process)
    if mend and runs then
      redis.call('HSET', q.entries, process, entry)
    elseif mend and runs == false and not holder(process) then
      end_entry(entry, process)
      process = nil
    else
      mended = false -- the worker that holds it will end it
    end
  end
  local planned = redis.call('ZSCORE', q.schedule, entry)
  if process and planned then
    wrong = true
    if mend then
      redis.call('ZREM', q.schedule, entry)
    end
  elseif waits and not process and tonumber(planned) ~= tonumber(due) then
    wrong = true
    if mend and planned then
      redis.call('HSET', key, 'due', planned)
    elseif mend then
      plan(q, entry, tonumber(due))
    end
  end
  if waits then
    local member = digest_in(entry) .. ':' .. entry
    if not redis.call('ZSCORE', q.contents, member) then
      wrong = true
      if mend then
        redis.call('ZADD', q.contents, 0, member)
      end
    end
  end
  if wrong then
    flaw('schedule', entry, mended)
  end
end

-- Each member of schedule has an entry.
function judges.scheduled(entry)
  local waits = redis.pcall('HEXISTS', q.keyed .. entry, 'payload')
  if not redis.call('ZSCORE', q.schedule, entry) then
    return
  end
  if waits == 0 and not field(entry, 'process') then
    if mend then
      redis.call('ZREM', q.schedule, entry)
    end
    flaw('schedule', entry, mend)
  elseif number(field(entry, 'retries')) > 0 then
    retries = retries + 1
  end
end

-- An item of the stream is an added task, and has its payload. Items of other programs have no
-- keys, but still run.
function judges.added(id)
  local item = redis.pcall('XRANGE', q.added, id, id)[1] -- nil for an error reply
  if not item then
    return
  end
  local ms, seq, salt, card = cards.item(item[1], item[2])
  local lost = ms and cards.has(card, cards.apart) and redis.pcall('HEXISTS', q.keyed .. cards.entry(ms, seq, salt), 'payload') == 0
  if lost and mend then
    added.drop({ id })
  end
  if lost or not ms then
    flaw('added', id, lost and mend)
  end
end

-- Each member of contents stands for a waiting task.
function judges.content(member)
  local of, entry = string.sub(member, 1, 40), string.sub(member, 42)
  if not redis.call('ZSCORE', q.contents, member) then
    return
  end
  local is = digest_in(entry)
  if is ~= nil and is ~= of then
    if mend then
      redis.call('ZREM', q.contents, member)
    end
    flaw('schedule', entry, mend)
  end
end

-- A listed holder holds something, or is a member whose next heartbeat can correct the list. It has
-- reported nothing about cancels that don't exist yet.
function judges.holder(w)
  local said = tonumber(redis.pcall('ZSCORE', q.holders, w)) -- nil for an error reply
  if not said then
    return
  end
  if redis.call('EXISTS', q.working .. w) == 0 and not is_member(w) then
    if mend then
      holds_nothing(w)
    end
    flaw('leftover', w, mend)
  elseif said > math.max(last_token() or NEVER, 1) then
    if mend then
      redis.call('ZADD', q.holders, 0, w)
    end
    flaw('cancel', w, mend)
  end
end

-- A process listed as stopping is running. When it ends, it's removed from the list.
function judges.stopping(member)
  local id = string.sub(member, 60)
  if type(redis.pcall('ZSCORE', q.stopping, member)) == 'string' and has_list(id) == false then
    if mend then
      redis.call('ZREM', q.stopping, member)
    end
    flaw('cancel', id, mend)
  end
end

-- A cancel in the log may cover something that a worker holds. One with a token that was
-- never issued would stop tasks that are enqueued later.
function judges.canceled(name)
  local canceled = tonumber(redis.call('ZSCORE', q.canceled, name))
  if not canceled then
    return
  end
  local ahead = canceled > math.max(last_token() or NEVER, 1)
  if ahead or redis.call('EXISTS', q.holders) == 0 then
    if mend then
      redis.call('ZREM', q.canceled, name)
      redis.call('PEXPIRE', q.cancel .. name, 60000)
    end
    flaw(ahead and 'future-cancel' or 'cancel', name, mend)
  end
end

-- The record of a cancel has a TTL.
function judges.record(name)
  if type(redis.pcall('HLEN', q.cancel .. name)) == 'number' and redis.call('PTTL', q.cancel .. name) == -1 then
    if mend then
      redis.call('PEXPIRE', q.cancel .. name, 60000)
    end
    flaw('ttl', name, mend)
  end
end

-- Each schedule has a member in recurring, and the reverse. The repair of a damaged schedule
-- clears its print, so that a peer with the schedule asserts it in full again.
-- If Redis's clock was ahead, a schedule is asserted until too late, or its occurrences up to a time that is
-- still to come count as started: it wouldn't end, or occur, before that.
function judges.recurring(entry)
  local key = courses.key(entry)
  local known = redis.pcall('HMGET', key, 'print', 'times', 'passed', 'since', 'late', 'more')
  if known.err or type(redis.pcall('ZCARD', KEYS[17])) ~= 'number' then
    return
  end
  local named, there = is_key(entry) and #entry > 2, redis.call('EXISTS', key) == 1
  local till = tonumber(redis.call('ZSCORE', KEYS[17], entry))
  if not there and not till then
    return
  elseif not there or not named then
    if mend then
      redis.call('ZREM', KEYS[17], entry)
      redis.call('DEL', key)
    end
    return flaw('recurring', entry, mend, named and 'The record of its next times is missing.' or "Its name isn't a key.")
  elseif not till then
    if mend then
      redis.call('ZADD', KEYS[17], now, entry)
    end
    flaw('recurring', entry, mend, 'Redis has no record of when peers last asserted it.')
  end
  local ahead = till and till > now + courses.longest
  if ahead and mend then
    redis.call('ZADD', KEYS[17], now, entry)
  end
  local function reads(i, pattern)
    return known[i] and string.match(known[i], pattern)
  end
  local times, passed, late = reads(2, '^[%d ]*$'), reads(3, '^%d+$'), reads(5, '^%d+$')
  local whole = known[1] and times and passed and late and reads(4, '^%d+$') and reads(6, '^%d+$')
  if passed and number(passed) > now + courses.back then
    ahead, passed = true, now
  end
  if whole and not ahead then
    return
  end
  if mend then
    redis.call('HSET', key, 'print', '', 'times', times or '', 'passed', passed or now, 'since', 0, 'late', late or 0, 'more', 0)
  end
  flaw('recurring', entry, mend, whole and "Redis's clock was ahead when it was last asserted or started." or 'The record of its next times is damaged.')
end

-- The result of a task is well formed, and has a TTL.
function judges.result(entry)
  local key = cards.record_of(entry)
  local begins = key and redis.pcall('GETRANGE', key, 0, 63)
  if type(begins) ~= 'string' or redis.call('EXISTS', key) == 0 then
    return
  end
  local before, text = string.match(begins, '^(%l+:%d+:(%d+):)')
  local last = before and #before + tonumber(text) - 1
  if not last or redis.call('GETRANGE', key, last, last) == '' then
    if mend then
      redis.call('DEL', key)
    end
    flaw('result', entry, mend)
  elseif redis.call('PTTL', key) == -1 then
    if mend then
      redis.call('PEXPIRE', key, 2592000000)
    end
    flaw('ttl', entry, mend)
  end
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
  if not adding and redis.call('EXISTS', q.added) == 1 then
    if mend then
      redis.call('DEL', q.added)
    end
    flaw('leftover', 'added', mend)
  end
  if counting and length == 0 and not keyed and redis.call('ZCARD', q.contents) == 0 and #holders() == 0 then
    if mend then
      redis.call('UNLINK', q.ledger)
    end
    flaw('crash-counts', name, mend)
  end
  if not alive and (length == 0 or not have_left()) and redis.call('EXISTS', q.ages) == 1 then
    if mend then
      redis.call('UNLINK', q.ages)
    end
    flaw('stale', 'ages', mend)
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
