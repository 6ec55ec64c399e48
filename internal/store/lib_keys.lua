-- lib_keys: the keys of a queue, the time, and the state.
--
-- ARGV[1] process   key prefix of an attempt's list
-- ARGV[2] working   key prefix of what a worker runs
-- ARGV[3] canceled  key prefix of a digest's last cancel
-- ARGV[4] result    key prefix of how a task ended; "" in a failed queue, whose tasks ended before
-- ARGV[5] channel   channel prefix, "worqr_{q}_"
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

-- Reads the pause and these numbers of the state, or all. Returns an error if they can't be changed: the state has another
-- type, or a number isn't one.
local state = {}
local function read_state(...)
  local fields = ... and { ... } or { 'token', 'place', 'taken', 'fence', 'lease', 'look', 'claimed' }
  local values = redis.pcall('HMGET', q.state, 'paused', unpack(fields))
  if values.err then
    return values
  end
  state.paused = values[1]
  for i, field in ipairs(fields) do
    local number = tonumber(values[i + 1] or 0)
    if not number or number % 1 ~= 0 then
      return redis.error_reply('WRONGTYPE the ' .. field .. ' of the queue is not a number')
    end
    state[field] = number
  end
end

