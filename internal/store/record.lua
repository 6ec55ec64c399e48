-- record: add what a peer has counted to the queue's history: to the record of this minute, and to that of this hour.
--
-- A record is varints, as in protocol buffers, without trailing zeros: tasks enqueued, started, finished, failed and
-- retried; ms of handlers; how many wait, and the most that did; for how many ms the front of the list has waited,
-- at most; how many failed tasks are kept; and then for each bucket of the histograms, how many waited and how many ran
-- that long.
--
-- ARGV[3] started
-- ARGV[4] finished
-- ARGV[5] failed
-- ARGV[6] retried
-- ARGV[7] ran      ms of handlers
-- then the buckets, in turn of those that waited and of those that ran.
-- Uses lib_keys.
--
-- Returns 1.
local HOUR, DAY = 3600000, 86400000
local MOST = 2 ^ 53

read_state('taken', 'added', 'seen')
local list = count('LLEN', q.queues)
local waiting = list + count('ZCARD', q.ready) + count('ZCARD', q.risky)

-- How many tasks were ever enqueued, and how many since the last call. At first, nobody knows how many were before.
local total = math.max(state.taken + list + state.added, 0)
local enqueued = math.max(total - state.seen, 0)
if state.seen == 0 then
  enqueued = math.min(total, waiting + count('ZCARD', q.schedule) + ARGV[3])
  total = enqueued > 0 and total or 0
end

local first = list > 0 and redis.pcall('ZRANGE', q.ages, '(' .. state.taken, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
local oldest = math.max(now - (tonumber(first or now) or now), 0)

local failed = 0
for _, kind in ipairs({ 'ready', 'risky', 'schedule', 'aside' }) do
  failed = failed + count('ZCARD', ARGV[1] .. ':failed:' .. kind .. ':' .. ARGV[2])
end

local counts = { enqueued, ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], 0, 0, 0, 0, unpack(ARGV, 8) }

local function decode(text)
  local numbers, n, scale = {}, 0, 1
  for _, byte in ipairs({ string.byte(text, 1, 300) }) do
    n = math.min(n + byte % 128 * scale, MOST)
    scale = math.min(scale * 128, MOST)
    if byte < 128 then
      numbers[#numbers + 1] = n
      n, scale = 0, 1
    end
  end
  return numbers
end

local function encode(numbers)
  local bytes = {}
  for _, n in ipairs(numbers) do
    while n >= 128 do
      bytes[#bytes + 1], n = n % 128 + 128, math.floor(n / 128)
    end
    bytes[#bytes + 1] = n
  end
  while bytes[#bytes] == 0 do
    bytes[#bytes] = nil
  end
  return string.char(unpack(bytes))
end

-- Adds the counts to a record, and keeps its hash for a time after that.
local function add(name, field, kept)
  local key = ARGV[1] .. ':history:' .. ARGV[2] .. ':' .. name
  local sums = decode(redis.call('HGET', key, field) or '')
  local most, longest = sums[8] or 0, sums[9] or 0
  for i, n in ipairs(counts) do
    sums[i] = math.min((sums[i] or 0) + n, MOST)
  end
  sums[7], sums[8], sums[9], sums[10] = waiting, math.max(most, waiting), math.max(longest, oldest), failed
  redis.call('HSET', key, field, encode(sums))
  redis.call('PEXPIRE', key, kept)
end

redis.call('HSET', q.state, 'seen', string.format('%d', total)) -- Redis refuses it all if it's full
add('h' .. math.floor(now / HOUR), math.floor(now % HOUR / 60000), 25 * HOUR)
add('d' .. math.floor(now / DAY), math.floor(now % DAY / HOUR), 61 * DAY)
return 1
