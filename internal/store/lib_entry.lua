-- lib_entry: the schedule. An entry is called "k:" and the user's key, or
-- "r:" and the process whose task is to be tried again. It is a hash:
--
--   payload, due, retries, crashes  what waits
--   digest                          of that, if it is large
--   process, tried, died, holder    what runs; its retries and crashes, and its worker
--   sum                             if that is large, process:digest
--   keep, counts, low, high         what the waiting part does to the running one
--                                   should that come back (put)
--
-- What waits is in contents, and in schedule unless something runs: then it is
-- blocked until that ends. A lane is q, or the failed queue (lib_failed).
-- Crashes of an r: entry are in the ledger, under its content.

-- Beyond every time that can be asked for. What is planned from here on was
-- given up and stays to be looked at.
local ASIDE = 4503599627370496

-- Idle workers with a score from here on keep the time: the last one to be
-- woken for other work, who was told when the next entry is due.
local CLOCK = 8796093022208

-- Whether an entry is the key of a user, and so its own identity.
local function is_key(entry)
  return entry and string.sub(entry, 1, 2) == 'k:'
end

-- A count or a time as it is stored. What others have written there is 0: an error
-- after the first write would leave a task in no place.
local function number(stored)
  local n = tonumber(stored)
  return n and n >= 0 and n <= NEVER and math.floor(n) or 0 --! rounded bound.1 constant.1
end

-- Digests of payloads. To compute one takes 2.5 ms for each MiB, so that of a large payload
-- is named by whoever sends it, and by its entry. What is named of one task says nothing
-- of another one with that payload: whoever names a wrong one harms the own task only.
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

-- The next task is looked at.
function digests.forget()
  if next(digests.named) then --! empty true
    digests.named = {}
  end
end

-- Somebody names the digest of a payload, if it is one: the first who does is believed.
function digests.name(payload, digest)
  if payload and is_digest(digest) then
    digests.named[payload] = digests.named[payload] or digest --! liar operand.1
  end
end

-- Whether an entry has what waits there under the digest that it names. Somebody who does
-- not know of that changes the payload alone; so contents must have it, too.
function digests.is_kept(lane, entry, digest)
  return is_digest(digest) and redis.call('ZSCORE', lane.contents, digest .. ':' .. entry)
end

function digests.of_entry(lane, entry, payload, digest)
  if payload and digests.is_kept(lane, entry, digest) then --! look operand.1
    digests.name(payload, digest)
  end
end

-- Has an entry name the digest of what waits, if it is large.
function digests.keep(key, payload)
  if #payload > digests.large then
    redis.call('HSET', key, 'digest', digest_of(payload))
  end
end

-- What waits is to start when it is due.
local function plan(lane, entry, due)
  redis.call('ZADD', lane.schedule, due, entry)
  scheduled = scheduled or lane == q
  if due <= now then
    lane.ready = (lane.ready or 0) + 1
  else
    lane.first = math.min(lane.first or due, due)
  end
end

-- An entry gets a waiting part.
local function await(lane, entry, payload, due, retries, crashes)
  local key = lane.keyed .. entry
  redis.call('HSET', key, 'payload', payload, 'due', due, 'retries', retries, 'crashes', crashes)
  digests.keep(key, payload)
  redis.call('ZADD', lane.contents, 0, digest_of(payload) .. ':' .. entry)
end

-- The waiting part of an entry goes, and with it the entry unless it runs. Returns
-- the payload, or nil if there is none. The digest is given if contents has told it, and a
-- payload if the entry stays where something else waits.
local function unwait(lane, entry, told, only)
  digests.forget()
  local key = lane.keyed .. entry
  local payload, process, digest = unpack(redis.pcall('HMGET', key, 'payload', 'process', 'digest')) -- of another type: it is lost
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
    redis.call('HDEL', key, 'payload', 'due', 'retries', 'crashes', 'digest', 'keep', 'counts', 'low', 'high')
  else
    redis.call('DEL', key)
  end
  return payload
end

-- What waits, and is not blocked, runs from now on.
local function entry_started(entry, id, payload, retries, crashes, worker)
  local key = q.keyed .. entry
  redis.call('ZREM', q.schedule, entry)
  redis.call('ZREM', q.contents, digest_of(payload) .. ':' .. entry)
  redis.call('HDEL', key, 'payload', 'due', 'retries', 'crashes', 'digest')
  redis.call('HSET', key, 'process', id, 'tried', retries, 'died', crashes, 'holder', worker)
  if #payload > digests.large then
    redis.call('HSET', key, 'sum', id .. ':' .. digest_of(payload))
  end
  redis.call('HSET', q.entries, id, entry)
  redis.call('LPUSH', q.process .. id, payload)
end

-- The running part of an entry goes; what was blocked by it no longer is.
local function entry_ended(entry, id)
  local key = q.keyed .. entry
  redis.call('HDEL', q.entries, id)
  local due = redis.call('HGET', key, 'due')
  if due then
    redis.call('HDEL', key, 'process', 'tried', 'died', 'holder', 'sum', 'keep', 'counts', 'low', 'high')
    plan(q, entry, number(due)) --! guard blocked-released omitted
  else
    redis.call('DEL', key)
  end
end

-- What runs is to wait again. If something newer waits, that says what becomes
-- of it, as it would have said of something that waits.
local function entry_returned(entry, id, payload, due, retries, crashes)
  local key = q.keyed .. entry
  local newer, planned, keep, counts, low, high, digest
  if is_key(entry) then -- nobody puts anything under the others --! look true
    newer, planned, keep, counts, low, high, digest = unpack(redis.call('HMGET', key,
      'payload', 'due', 'keep', 'counts', 'low', 'high', 'digest'))
  end
  redis.call('HDEL', q.entries, id)
  redis.call('HDEL', key, 'process', 'tried', 'died', 'holder', 'sum')
  if newer then
    digests.of_entry(q, entry, newer, digest)
    redis.call('HDEL', key, 'digest', 'keep', 'counts', 'low', 'high')
    -- Without bounds it was put when Redis had lost what runs.
    due = math.min(math.max(due, number(low or planned)), number(high or planned))
    if counts ~= '1' then
      retries, crashes = 0, 0
    end
    if keep ~= '1' then
      payload = newer
    elseif newer ~= payload then --! look true
      redis.call('ZREM', q.contents, digest_of(newer) .. ':' .. entry)
    end
  end
  await(q, entry, payload, due, retries, crashes)
  plan(q, entry, due)
end

-- Whether somebody idle keeps the time, and whether somebody is idle; whether this
-- worker keeps it.
local function kept()
  local last = redis.pcall('ZRANGE', q.idle, -1, -1, 'WITHSCORES')
  local someone = not last.err and #last > 0 --! error operand.1; pair constant
  return someone and tonumber(last[2]) >= CLOCK, someone --! epoch bound
end

local function keeps_time(worker)
  local score = scheduled and redis.pcall('ZSCORE', q.idle, worker)
  return type(score) == 'string' and tonumber(score) >= CLOCK --! epoch bound.2
end

-- Whoever keeps the time hears that it has changed, or somebody idle begins to
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

-- Whether whoever keeps the time is to hear of something planned, or of having to.
local function earlier(lane)
  if lane.first and not lane.earlier then
    local next_ = redis.call('ZRANGEBYSCORE', lane.schedule, '(' .. now, '(' .. ASIDE, 'WITHSCORES', 'LIMIT', 0, 1) --! first constant.2; epoch score.2
    lane.earlier = #next_ > 0 and tonumber(next_[2]) >= lane.first --! pair constant
  end
  return lane.earlier
end

-- Every script that plans ends with this, with the number of tasks that it put
-- to the front of the list.
local function alert(lane, returned)
  wake(lane.idle, lane.wake, math.max(returned, lane.ready or 0))
  if earlier(lane) then
    ring(lane)
  end
end
