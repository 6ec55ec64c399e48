-- lib_entry: the schedule. An entry's name is "k:" and the user's key, "u:" and the digest of a
-- unique task's payload, or "r:" and the process whose task waits for its retry. It's a hash:
--
--   payload, due, retries, crashes  the waiting task; and card, if it has one (lib_card)
--   digest                          of the waiting task, if it's known only by its key; of a payload
--                                   that is one crash away from failing, too
--   process, tried, died, holder    the running task: its retries and crashes, and its worker;
--                                   and held, its card
--   sum                             process:digest, if the running task is known only by its key
--   error                           the error of the last attempt
--   keep, counts, low, high         how the waiting task merges with the running one
--                                   if that is retried or returned (put)
--   turn, took                      times of the waiting and the running occurrence
--   withheld                        no peer asserts its schedule: see lib_recur
--
-- A waiting entry is in contents. It's also in schedule unless it's blocked because a task
-- runs under it. A lane is q, or the failed queue (lib_failed).
-- Crashes of an r: or u: entry are in the ledger, under its payload's digest.

-- Later than any time that callers can ask for. An entry planned for this time or later
-- was set aside and stays for inspection.
local ASIDE = 4503599627370496

-- Idle workers with a score from here on keep the time. They are the last to be
-- woken for other work, and know when the next entry is due.
local CLOCK = 8796093022208

-- Reports whether an entry is a user's key, and so has its own identity.
local function is_key(entry)
  return entry and string.sub(entry, 1, 2) == 'k:'
end

-- Reports whether an entry is a user's key or a unique task's: a failed task goes back under it.
local function has_name(entry)
  return entry and string.find(entry, '^[ku]:') ~= nil
end

-- Parses a stored count or time. Anything else that another program has stored counts as 0:
-- an error after the first write would lose the task.
local function number(stored)
  local n = tonumber(stored)
  return n and n >= 0 and n <= NEVER and math.floor(n) or 0
end

-- Digests of payloads. Computing one takes 2.5 ms for each MiB. A task that is known only by its
-- key has the digest of its entry's name instead, which is named for the payload.
local digests = {
  hashed = 0, -- bytes that were hashed
  named = {}, -- for the current task
}

local function is_digest(s)
  return s and #s == 40 and not string.find(s, '[^0-9a-f]')
end

-- Returns the SHA-1 of a payload. It remembers the last one.
function digests.sum(payload)
  if digests.last ~= payload then
    digests.last, digests.hashed = payload, digests.hashed + #payload
    digests.last_sum = redis.sha1hex(payload)
  end
  return digests.last_sum
end

local function digest_of(payload)
  return digests.named[payload] or digests.sum(payload)
end

-- Forgets the digests named for the current task.
function digests.forget()
  if next(digests.named) then
    digests.named = {}
  end
end

-- Notes the named digest of a payload, if it's well formed. The first one wins.
function digests.name(payload, digest)
  if payload and is_digest(digest) then
    digests.named[payload] = digests.named[payload] or digest
  end
end

-- Reports whether an entry's waiting payload has the digest that the entry names. A program
-- that doesn't know about digests changes only the payload, so contents must have it, too.
function digests.is_kept(lane, entry, digest)
  return is_digest(digest) and redis.call('ZSCORE', lane.contents, digest .. ':' .. entry)
end

function digests.of_entry(lane, entry, payload, digest)
  if payload and digests.is_kept(lane, entry, digest) then
    digests.name(payload, digest)
  end
end

-- Reports whether an entry keeps the digest of its task: the task is known only by its key, so
-- that equal payloads don't share its identity.
function digests.are_kept(entry, payload)
  return is_key(entry) and digests.named[payload]
end

-- Reports whether the current task is known only by its key.
function digests.are_of_key(entry, payload)
  return entry and digests.named[payload] == redis.sha1hex(entry)
end

-- Reports whether contents has an entry under the digest of a payload although the entry isn't a
-- copy of it: its task is known only by its key, and the payload equals the name of the entry. A
-- payload's digest is in a key's entry only then.
function digests.are_of_name(lane, entry, payload, digest)
  return is_key(payload) and is_key(entry) and redis.pcall('HGET', lane.keyed .. entry, 'digest') == digest
end

-- Stores the digest of an entry's waiting payload in the entry, if it's kept.
function digests.keep(lane, entry, payload)
  if digests.are_kept(entry, payload) then
    redis.call('HSET', lane.keyed .. entry, 'digest', digest_of(payload))
  end
end

-- Plans a waiting task for its time.
local function plan(lane, entry, due)
  redis.call('ZADD', lane.schedule, due, entry)
  scheduled = scheduled or lane == q
  if due <= now then
    lane.ready = (lane.ready or 0) + 1
  else
    lane.first = math.min(lane.first or due, due)
  end
end

-- Adds a waiting part to an entry.
local function await(lane, entry, payload, due, retries, crashes, card)
  local key = lane.keyed .. entry
  redis.call('HSET', key, 'payload', payload, 'due', due, 'retries', retries, 'crashes', crashes)
  if card then
    redis.call('HSET', key, 'card', card)
  end
  digests.keep(lane, entry, payload)
  redis.call('ZADD', lane.contents, 0, digest_of(payload) .. ':' .. entry)
end

-- Recurring tasks. A schedule is a hash beside the entry of its key:
--
--   print, since      the fingerprint of the schedule, and since when it's asserted, in µs
--   before            replaced prints and their since: "print:since …"
--   times, more       the next times, in ms; and when peers should add more
--   passed            occurrences up to this time have started or were dropped
--   late              an occurrence that is more than this many ms late is skipped; 0: never
--   payload, card     of every occurrence
--   last              how the last occurrence ended: "outcome:its time:now"
--
-- The zset recurring has the time until which each schedule is asserted. An occurrence waits
-- and runs under the key like any task there. When it starts, the next one is put under the
-- key, and waits until it has ended. If it is retried or returned instead, the next
-- one is dropped until it starts again.

local courses = later(function(courses)
  -- Peers assert a schedule for less than this.
  courses.longest = 60000

  -- How far Redis's clock may be set back without occurrences that have started starting again.
  courses.back = 3600000

  -- Reports whether a time is passed that Redis's clock will reach only later than it may be set back. If an occurrence
  -- that is to come was dropped, what has passed is one of the known times.
  function courses.is_ahead(record, passed)
    if passed <= now + courses.back then
      return false
    end
    local times = redis.call('HGET', record, 'times') or ''
    return not string.find(' ' .. times .. ' ', string.format(' %.0f ', passed), 1, true)
  end

  -- Returns the key of a schedule. Queue names contain no braces.
  function courses.key(entry)
    return string.gsub(q.keyed, ':keyed:{', ':recurrence:{') .. entry
  end

  -- Returns the fields of a schedule; nil if there is none, or the key has the wrong type.
  function courses.of(entry)
    local known = redis.pcall('HMGET', courses.key(entry), 'passed', 'times', 'payload', 'late', 'card')
    if not known[1] then
      return nil
    end
    return { passed = number(known[1]), times = known[2] or '', payload = known[3] or '', late = number(known[4]),
      card = known[5] ~= '' and known[5] }
  end

  -- Returns the time up to which occurrences of a schedule have passed; false if there is no
  -- schedule. It doesn't read the payload.
  function courses.passed(entry)
    local passed = redis.pcall('HGET', courses.key(entry), 'passed')
    return type(passed) == 'string' and number(passed)
  end

  -- Notes that an occurrence starts or is dropped. If that's the first time, it isn't planned
  -- again, and the occurrences missed by now are skipped.
  function courses.pass(entry, turn)
    local passed = courses.passed(entry)
    if passed and turn > passed then
      redis.call('HSET', courses.key(entry), 'passed', math.max(turn, now))
    end
  end

  -- Stores how an occurrence ended, for listings.
  function courses.tell(entry, outcome, turn)
    if redis.pcall('HEXISTS', courses.key(entry), 'passed') == 1 then
      redis.call('HSET', courses.key(entry), 'last', outcome .. ':' .. turn .. ':' .. now)
    end
  end
end)

-- Removes the waiting part of an entry, and the entry unless its task is running. Returns the
-- payload, or nil if there is none; and its card, unless a task runs whose result will be kept: callers
-- then wait for that one.
-- told is the digest if contents has it. With only, nothing happens if another payload waits.
local function unwait(lane, entry, told, only)
  digests.forget()
  local key = lane.keyed .. entry
  local payload, process, digest, card, turn, held = unpack(redis.pcall('HMGET', key, 'payload', 'process', 'digest', 'card', 'turn', 'held')) -- an error has no fields: a key of the wrong type counts as lost
  if only and payload ~= only then
    return nil
  end
  redis.call('ZREM', lane.schedule, entry)
  if not payload then
    return nil
  end
  if told then
    digests.name(payload, told)
  else
    digests.of_entry(lane, entry, payload, digest)
  end
  redis.call('ZREM', lane.contents, digest_of(payload) .. ':' .. entry)
  if process then
    redis.call('HDEL', key, 'payload', 'due', 'retries', 'crashes', 'digest', 'card', 'turn', 'keep', 'counts', 'low', 'high')
  else
    redis.call('DEL', key)
  end
  if turn and lane == q then
    courses.pass(entry, number(turn))
  end
  return payload, card and cards.keeps(held or '') == 0 and card
end

-- Starts a waiting task that isn't blocked.
local function entry_started(entry, id, payload, retries, crashes, worker, card, turn)
  local key = q.keyed .. entry
  redis.call('ZREM', q.schedule, entry)
  redis.call('ZREM', q.contents, digest_of(payload) .. ':' .. entry)
  redis.call('HDEL', key, 'payload', 'due', 'retries', 'crashes', 'digest', 'card', 'turn', 'withheld')
  if turn then
    redis.call('HSET', key, 'took', turn)
  end
  redis.call('HSET', key, 'process', id, 'tried', retries, 'died', crashes, 'holder', worker)
  if card then
    redis.call('HSET', key, 'held', card)
  end
  if digests.are_kept(entry, payload) then
    redis.call('HSET', key, 'sum', id .. ':' .. digest_of(payload))
  end
  redis.call('HSET', q.entries, id, entry)
  redis.call('LPUSH', q.process .. id, payload)
end

-- The running added tasks that this script has looked up, by process: their names, and their values in entries.
q.running = {}

-- Removes the fields of a process from entries.
function q.untie(id)
  if q.running[id] then
    redis.call('HDEL', q.entries, id, q.running[id].name)
  else
    redis.call('HDEL', q.entries, id)
  end
end

-- Removes the running part of an entry, and unblocks the waiting part.
local function entry_ended(entry, id, outcome)
  local key = q.keyed .. entry
  q.untie(id)
  local due, took
  if not q.running[id] then
    due, took = unpack(redis.call('HMGET', key, 'due', 'took'))
  end
  if took then
    courses.tell(entry, outcome or 'lost', took)
  end
  if due then
    redis.call('HDEL', key, 'process', 'tried', 'died', 'holder', 'sum', 'held', 'took', 'error', 'keep', 'counts', 'low', 'high')
    plan(q, entry, number(due))
  else
    redis.call('DEL', key)
  end
end

-- Makes a running task wait again. If a newer task waits under its entry, the options of that
-- put decide which of them stays, as they would for a waiting task. card is the running
-- task's. Returns whether the running task's counts are kept.
local function entry_returned(entry, id, payload, due, retries, crashes, card)
  local key = q.keyed .. entry
  local newer, planned, keep, counts, low, high, digest, took, its_card
  if is_key(entry) and not q.running[id] then -- no newer task can be under other entries
    newer, planned, keep, counts, low, high, digest, took, its_card = unpack(redis.call('HMGET', key,
      'payload', 'due', 'keep', 'counts', 'low', 'high', 'digest', 'took', 'card'))
  end
  q.untie(id)
  redis.call('HDEL', key, 'process', 'tried', 'died', 'holder', 'sum', 'held', 'took')
  if newer then
    local ran = digests.named -- one task may be known by its key, the other by an equal payload
    digests.forget()
    digests.of_entry(q, entry, newer, digest)
    redis.call('HDEL', key, 'digest', 'keep', 'counts', 'low', 'high')
    -- Without bounds, it was put after Redis had lost the running task.
    due = math.min(math.max(due, number(low or planned)), number(high or planned))
    if counts ~= '1' then
      retries, crashes = 0, 0
      redis.call('HDEL', key, 'error')
    end
    if keep ~= '1' then
      cards.replaced(entry, card, its_card)
      payload, card = newer, nil -- the entry already has its card
    else
      redis.call('HDEL', key, 'card')
      local waited = digest_of(newer)
      digests.named = ran
      if waited ~= digest_of(payload) then
        redis.call('ZREM', q.contents, waited .. ':' .. entry)
      end
    end
  end
  await(q, entry, payload, due, retries, crashes, card)
  if took then
    redis.call('HSET', key, 'turn', took)
  end
  plan(q, entry, due)
  return not newer or counts == '1'
end

-- Reports whether an idle worker keeps the time, and whether any worker is idle.
local function kept()
  local last = redis.pcall('ZRANGE', q.idle, -1, -1, 'WITHSCORES')
  local someone = not last.err and #last > 0
  return someone and tonumber(last[2]) >= CLOCK, someone
end

-- Reports whether this worker keeps the time.
local function keeps_time(worker)
  local score = scheduled and redis.pcall('ZSCORE', q.idle, worker)
  return type(score) == 'string' and tonumber(score) >= CLOCK
end

-- Wakes the worker that keeps the time, because the next due time has changed, or another
-- idle worker, which then keeps it.
local function ring(lane)
  for _ = 1, WAKE_AT_MOST do
    local last = redis.pcall('ZPOPMAX', lane.idle)
    if last.err or #last == 0 then
      return
    end
    local reached = redis.pcall('PUBLISH', lane.wake .. last[1], 0)
    if type(reached) == 'number' and reached > 0 then
      return
    end
  end
end

-- Reports whether a newly planned entry is the next one due, or the worker that kept the time
-- is gone, so that a worker must be woken.
local function earlier(lane)
  if lane.first and not lane.earlier then
    local next_ = redis.call('ZRANGEBYSCORE', lane.schedule, '(' .. now, '(' .. ASIDE, 'WITHSCORES', 'LIMIT', 0, 1)
    lane.earlier = #next_ > 0 and tonumber(next_[2]) >= lane.first
  end
  return lane.earlier
end

-- Wakes workers for newly ready tasks. Every script that plans entries ends with this, and
-- passes the number of tasks that it put at the front of the list.
local function alert(lane, returned)
  wake(lane.idle, lane.wake, math.max(returned, lane.ready or 0))
  if earlier(lane) then
    ring(lane)
  end
end
