-- lib_queue: the keys of a queue, the time, and what several scripts do with both.
--
-- ARGV[1] process   key prefix of an attempt's list
-- ARGV[2] working   key prefix of what a worker runs
-- ARGV[3] canceled  key prefix of a digest's last cancel
-- ARGV[4] result    key prefix of how a task ended; "" in a failed queue, whose tasks ended before
-- ARGV[5] channel   channel prefix, "worqr_{q}_"
-- Uses lib_wake.
local q = {
  queues = KEYS[1], tasks = KEYS[2], ready = KEYS[3], schedule = KEYS[4], risky = KEYS[5], aside = KEYS[6],
  next = KEYS[7], runs = KEYS[8], copies = KEYS[9], workers = KEYS[10], suspects = KEYS[11], leaving = KEYS[12],
  idle = KEYS[13], rounds = KEYS[14], state = KEYS[15], crashes = KEYS[16], recurring = KEYS[17], recurrence = KEYS[18],
  ages = KEYS[19], -- and KEYS[20] never exists
  process = ARGV[1], working = ARGV[2], canceled = ARGV[3], result = ARGV[4], channel = ARGV[5],
}
local MIB = 1048576
local FRONT = 4503599627370496 -- 2^52: places of returned tasks are token - FRONT

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Reads the state. Returns an error if it can't be changed: it has another type, or a number isn't one.
local state = {}
local NUMBERS = { 'token', 'place', 'taken', 'fence', 'lease', 'look', 'claimed' }
local function read_state()
  local values = redis.pcall('HMGET', q.state, 'paused', unpack(NUMBERS))
  if values.err then
    return values
  end
  state.paused = values[1]
  for i, field in ipairs(NUMBERS) do
    local number = tonumber(values[i + 1] or 0)
    if not number or number % 1 ~= 0 then
      return redis.error_reply('WRONGTYPE the ' .. field .. ' of the queue is not a number')
    end
    state[field] = number
  end
end

-- Fails if one of these keys has the wrong type. A script calls it before its first write. Then size has how much
-- each holds.
local size = {}
local SIZE = {
  queues = 'LLEN', tasks = 'HLEN', next = 'HLEN', runs = 'HLEN', rounds = 'HLEN', state = 'HLEN', crashes = 'HLEN',
  recurrence = 'HLEN', -- the others are sorted sets
}
local function check_types(...)
  for _, kind in ipairs({ ... }) do
    size[kind] = redis.call(SIZE[kind] or 'ZCARD', q[kind])
  end
end

-- Needs no memory, so that later writes are allowed even if Redis is full.
local function first_write()
  redis.call('ZREM', q.suspects, '')
end

local function next_place()
  return redis.call('HINCRBY', q.state, 'place', 1)
end

-- What this call has made startable, and the earliest time that it has planned.
local startable, earliest = 0, math.huge

local function make_ready(name, place)
  redis.call('ZADD', q.ready, place, name)
  startable = startable + 1
end

local function plan(name, at)
  if at <= now then
    return make_ready(name, next_place())
  end
  redis.call('ZADD', q.schedule, at, name)
  earliest = math.min(earliest, at)
end

-- The end of each script that made something startable or planned something.
local function tell()
  if startable == 0 and earliest == math.huge or not state.token and read_state() or state.paused then
    return
  end
  local is_claimed = state.claimed > now and state.claimed <= earliest
  wake(q.idle, q.channel, startable > 0 and startable or is_claimed and 0 or 1)
end
