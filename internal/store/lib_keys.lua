-- lib_keys: the keys of a queue, the time, and the state.
--
-- KEYS     state, and one that never exists: by them, Redis knows the queue's node, whether it moves, and which users may use it
-- ARGV[1] prefix  of all keys, as "worqr"; that of a failed queue ends in ":failed"
-- ARGV[2] tail    end of the queue's keys, "{q}"

-- Returns the names of a queue's keys. The last ones are prefixes.
local function keys_of(prefix)
  local from, to = prefix .. ':', ':' .. ARGV[2]
  return {
    queues = from .. 'queues' .. to, tasks = from .. 'tasks' .. to, ready = from .. 'ready' .. to,
    schedule = from .. 'schedule' .. to, risky = from .. 'risky' .. to, aside = from .. 'aside' .. to,
    next = from .. 'next' .. to, runs = from .. 'runs' .. to, copies = from .. 'copies' .. to,
    workers = from .. 'workers' .. to, suspects = from .. 'suspects' .. to, leaving = from .. 'leaving' .. to,
    idle = from .. 'idle' .. to, rounds = from .. 'rounds' .. to, state = from .. 'state' .. to,
    crashes = from .. 'crashes' .. to, ages = from .. 'ages' .. to,
    recurring = from .. 'recurring' .. to, recurrence = from .. 'recurrence' .. to,
    process = from .. 'process' .. to .. ':', working = from .. 'working' .. to .. ':',
    canceled = from .. 'canceled' .. to .. ':', once = from .. 'once' .. to .. ':',
    result = from .. 'result' .. to .. ':', channel = prefix .. '_' .. ARGV[2] .. '_',
  }
end
local q, in_failed = keys_of(ARGV[1]), string.sub(ARGV[1], -7) == ':failed'
local MIB = 1048576
local FRONT = 4503599627370496 -- 2^52: places of returned tasks are token - FRONT

-- Counts something; what has the wrong type counts as nothing.
local function count(command, key, ...)
  local n = redis.pcall(command, key, ...)
  return type(n) == 'number' and n or 0
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Reads the pause and these numbers of the state, or all but those of the history. Fails if they can't be changed: the state has another type, or a
-- number isn't one that HINCRBY and Lua can count up. Those of the history begin anew instead.
local state = { paused = false, token = 0, place = 0, taken = 0, fence = 0, lease = 0, look = 0, claimed = 0 }
local function read_state(...)
  local fields = ... and { ... } or { 'token', 'place', 'taken', 'fence', 'lease', 'look', 'claimed' }
  local values = redis.call('HMGET', q.state, 'paused', unpack(fields))
  state.paused = values[1]
  for i, field in ipairs(fields) do
    local text = values[i + 1] or '0'
    if text ~= '0' and not string.find(text, '^%-?[1-9]%d*$') or math.abs(text) >= 2 ^ 53 then
      text = (field == 'added' or field == 'seen') and '0' or error('WRONGTYPE the ' .. field .. ' of the queue is not a number', 0)
    end
    state[field] = tonumber(text)
  end
end
