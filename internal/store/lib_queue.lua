-- lib_queue: what several scripts do with the keys of a queue.
-- Uses lib_keys, lib_wake.

-- Fails if a key of a queue has the wrong type. A script calls it before its first write. Then size has how much each
-- of them holds, of the queue that was checked last.
local size = {}
local SIZE = { queues = 'LLEN', tasks = 'HLEN', next = 'HLEN', runs = 'HLEN', rounds = 'HLEN', state = 'HLEN',
  crashes = 'HLEN', recurrence = 'HLEN' } -- the others are sorted sets
local function check_types(of, ...)
  for _, kind in ipairs({ ... }) do
    size[kind] = redis.call(SIZE[kind] or 'ZCARD', of[kind])
  end
end

-- All kinds of keys that say something about named tasks.
local NAMED = { 'tasks', 'next', 'runs', 'ready', 'schedule', 'risky', 'aside', 'copies', 'crashes', 'recurring',
  'recurrence' }

-- Needs no memory, so that later writes are allowed even if Redis is full.
local function first_write()
  redis.call('ZREM', q.suspects, '')
end

local function next_place() -- as text: Lua would write a large number as 1e+15
  return string.format('%.0f', redis.call('HINCRBY', q.state, 'place', 1))
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
  if startable == 0 and earliest == math.huge or state.paused then
    return
  end
  local is_claimed = state.claimed > now and state.claimed <= earliest
  wake(q.idle, q.channel, startable > 0 and startable or is_claimed and 0 or 1)
end
