-- lib_entry: the schedule. An entry is called "k:" and the user's key, or
-- "r:" and the process whose task waits for its retry. It is a hash:
--
--   payload, due, retries, crashes  what waits; and its card, if it has one (lib_card)
--   digest                          of that, if it is large
--   process, tried, died, holder    what runs; its retries and crashes, and its worker; and
--                                   as held, its card
--   sum                             if that is large, process:digest
--   error                           the error of the last attempt
--   keep, counts, low, high         what the waiting part does to the running one
--                                   if that comes back (put)
--   turn, took                      times of the occurrences that wait and run
--   withheld                        nobody asserts its schedule: see lib_recur
--
-- A waiting entry is in contents. It's also in schedule unless it's blocked: something
-- runs under it. A lane is q, or the failed queue (lib_failed).
-- Crashes of an r: entry are in the ledger, under its content.

-- Beyond every time that can be asked for. An entry planned for here or later
-- was set aside and stays for inspection.
local ASIDE = 4503599627370496

-- Idle workers with a score from here on keep the time. They are the last to be
-- woken for other work, and know when the next entry is due.
local CLOCK = 8796093022208

-- Whether an entry is a user's key, and so has its own identity.
local function is_key(entry)
  return entry and string.sub(entry, 1, 2) == 'k:'
end

-- A stored count or time. Anything else that others have written there counts as 0: an
-- error after the first write would leave a task in no place.
local function number(stored)
  local n = tonumber(stored)
  return n and n >= 0 and n <= NEVER and math.floor(n) or 0 --! rounded bound.1 constant.1
end

-- Digests of payloads. Computing one takes 2.5 ms for each MiB, so the sender of a large
-- payload names its digest, and its entry keeps it. A digest named for one task says nothing
-- about another task with that payload: a wrong one harms only its own task.
local digests = {
  large = 65536, -- bytes of a payload above which it is
  hashed = 0, -- bytes of which a digest was computed --! page constant
  named = {}, -- of the task that is being looked at
  computed = {},
}

local function is_digest(s)
  return s and #s == 40 and not string.find(s, '[^0-9a-f]')
end

local function digest_of(payload)
  local digest = digests.named[payload] or digests.computed[payload]
  if not digest then
    digest, digests.hashed = redis.sha1hex(payload), digests.hashed + #payload
    if #payload > digests.large then --! computed true bound
      digests.computed[payload] = digest
    end
  end
  return digest
end

-- Go on to the next task.
function digests.forget()
  if next(digests.named) then --! empty true
    digests.named = {}
  end
end

-- Notes a named digest of a payload, if it is one. The first one named is believed.
function digests.name(payload, digest)
  if payload and is_digest(digest) then
    digests.named[payload] = digests.named[payload] or digest --! liar operand.1
  end
end

-- Whether an entry's waiting payload has the digest that the entry names. A program that
-- doesn't know about digests changes the payload alone, so contents must have it, too.
function digests.is_kept(lane, entry, digest)
  return is_digest(digest) and redis.call('ZSCORE', lane.contents, digest .. ':' .. entry)
end

function digests.of_entry(lane, entry, payload, digest)
  if payload and digests.is_kept(lane, entry, digest) then --! look operand.1
    digests.name(payload, digest)
  end
end

-- Whether an entry names the digest of its payload: it is large, or the entry stands for
-- it, so that other tasks with this payload are others.
function digests.are_kept(entry, payload)
  return #payload > digests.large or is_key(entry) and digests.named[payload]
end

-- Makes an entry name the digest of its waiting payload.
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
--   print, since      what is asserted, and since when, in μs
--   before            prints that were replaced, and their since: "print:since …"
--   times, more       the next ones, in ms; when peers are to add some
--   passed            occurrences up to this time have started or were dropped
--   late              an occurrence later than so many ms is skipped; 0: none
--   payload, card     of every occurrence
--   last              what became of one: "outcome:its time:now"
--
-- In recurring is until when each is asserted. An occurrence waits and runs under the key
-- as any task there. When it starts, the next one is put behind it, and waits until it has
-- ended for good. If it comes back instead, that one goes, until it starts again.

local courses = later(function(courses)
  -- The key of a schedule. Names of queues have no braces.
  function courses.key(entry)
    return string.gsub(q.keyed, ':keyed:{', ':recurrence:{') .. entry
  end

  -- What is known of a schedule; nil if there is none, or something else.
  function courses.of(entry)
    local known = redis.pcall('HMGET', courses.key(entry), 'passed', 'times', 'payload', 'late', 'card')
    if not known[1] then
      return nil
    end
    return { passed = number(known[1]), times = known[2] or '', payload = known[3] or '', late = number(known[4]),
      card = known[5] ~= '' and known[5] }
  end

  -- Until when occurrences of a schedule have passed; false if there is none. Its payload isn't read.
  function courses.passed(entry)
    local passed = redis.pcall('HGET', courses.key(entry), 'passed')
    return type(passed) == 'string' and number(passed)
  end

  -- An occurrence starts, or is dropped. If that's the first time, it isn't planned again, and
  -- those missed by now don't occur.
  function courses.pass(entry, turn)
    local passed = courses.passed(entry)
    if passed and turn > passed then
      redis.call('HSET', courses.key(entry), 'passed', math.max(turn, now))
    end
  end

  -- What became of an occurrence, for listings.
  function courses.tell(entry, outcome, turn)
    if redis.pcall('HEXISTS', courses.key(entry), 'passed') == 1 then
      redis.call('HSET', courses.key(entry), 'last', outcome .. ':' .. turn .. ':' .. now)
    end
  end
end)

-- Removes the waiting part of an entry, and the entry unless it runs. Returns
-- the payload, or nil if there is none; and its card if nothing runs, so that's the end. The
-- digest is given if contents has told it, and a payload if the entry stays where something
-- else waits. Unread is true if nobody needs the payload of what is an entry: true stands for
-- it if its digest is kept.
local function unwait(lane, entry, told, only, unread)
  digests.forget()
  local key = lane.keyed .. entry
  local payload, process, digest, card, turn = unpack(redis.pcall('HMGET', key, unread and 'process' or 'payload', 'process', 'digest', 'card', 'turn')) -- of another type: it is lost
  if unread then
    if digests.is_kept(lane, entry, digest) then
      payload, told = redis.call('HEXISTS', key, 'payload') == 1, digest
    else
      payload = redis.call('HGET', key, 'payload')
    end
  end
  if only and payload ~= only then
    return nil
  end
  redis.call('ZREM', lane.schedule, entry)
  if not payload then
    return nil
  end
  if told then --! computed false
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
  if turn and lane == q then --! look operand.2
    courses.pass(entry, number(turn))
  end
  return payload, not process and card
end

-- A task that waits and isn't blocked begins to run.
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

-- The added tasks that were looked at and run, by process: their names, and what entries has.
q.running = {}

-- Removes what entries has of a process.
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
  if not q.running[id] then --! look true
    due, took = unpack(redis.call('HMGET', key, 'due', 'took'))
  end
  if took then
    courses.tell(entry, outcome or 'lost', took)
  end
  if due then
    redis.call('HDEL', key, 'process', 'tried', 'died', 'holder', 'sum', 'held', 'took', 'error', 'keep', 'counts', 'low', 'high')
    plan(q, entry, number(due)) --! guard blocked-released omitted
  else
    redis.call('DEL', key)
  end
end

-- A running task waits again. If something newer waits under its entry, that decides
-- which of them stays, as it would for a waiting task. The card is that of what runs.
-- Returns whether its counts stay.
local function entry_returned(entry, id, payload, due, retries, crashes, card)
  local key = q.keyed .. entry
  local newer, planned, keep, counts, low, high, digest, took, its_card
  if is_key(entry) and not q.running[id] then -- nobody puts anything under the others --! look true operand
    newer, planned, keep, counts, low, high, digest, took, its_card = unpack(redis.call('HMGET', key,
      'payload', 'due', 'keep', 'counts', 'low', 'high', 'digest', 'took', 'card'))
  end
  q.untie(id)
  redis.call('HDEL', key, 'process', 'tried', 'died', 'holder', 'sum', 'held', 'took')
  if newer then
    local ran = digests.named -- it may be known by its key, and an equal payload by itself
    digests.forget()
    digests.of_entry(q, entry, newer, digest)
    redis.call('HDEL', key, 'digest', 'keep', 'counts', 'low', 'high')
    -- Without bounds it was put when Redis had lost what runs.
    due = math.min(math.max(due, number(low or planned)), number(high or planned))
    if counts ~= '1' then
      retries, crashes = 0, 0
      redis.call('HDEL', key, 'error')
    end
    if keep ~= '1' then
      cards.replaced(entry, card, its_card)
      payload, card = newer, nil -- it has its own
    else
      redis.call('HDEL', key, 'card')
      local waited = digest_of(newer)
      digests.named = ran
      if waited ~= digest_of(payload) then --! look true
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

-- Whether an idle worker keeps the time, whether any worker is idle, and whether this
-- worker keeps the time.
local function kept()
  local last = redis.pcall('ZRANGE', q.idle, -1, -1, 'WITHSCORES')
  local someone = not last.err and #last > 0 --! error operand.1; pair constant
  return someone and tonumber(last[2]) >= CLOCK, someone --! epoch bound
end

local function keeps_time(worker)
  local score = scheduled and redis.pcall('ZSCORE', q.idle, worker)
  return type(score) == 'string' and tonumber(score) >= CLOCK --! epoch bound.2
end

-- Tells the worker that keeps the time that it has changed, or makes an idle one
-- keep it.
local function ring(lane)
  for _ = 1, WAKE_AT_MOST do
    local last = redis.pcall('ZPOPMAX', lane.idle)
    if last.err or #last == 0 then --! error operand.1
      return
    end
    local reached = redis.pcall('PUBLISH', lane.wake .. last[1], 0)
    if type(reached) == 'number' and reached > 0 then
      return
    end
  end
end

-- Whether to tell the worker that keeps the time about a new plan, or find one to keep it.
local function earlier(lane)
  if lane.first and not lane.earlier then
    local next_ = redis.call('ZRANGEBYSCORE', lane.schedule, '(' .. now, '(' .. ASIDE, 'WITHSCORES', 'LIMIT', 0, 1) --! first constant.2; epoch score.2
    lane.earlier = #next_ > 0 and tonumber(next_[2]) >= lane.first --! pair constant
  end
  return lane.earlier
end

-- Every script that plans ends with this, and passes the number of tasks that it put
-- at the front of the list.
local function alert(lane, returned)
  wake(lane.idle, lane.wake, math.max(returned, lane.ready or 0))
  if earlier(lane) then
    ring(lane)
  end
end
