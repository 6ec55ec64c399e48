-- lib_queue: the keys and names that the scripts of a queue's members share.
--
-- KEYS[1]  waiting   list           payloads; the tail is the front
-- KEYS[2]  workers   zset           worker → lease deadline, ms
-- KEYS[3]  idle      zset           worker → idle since, ms
-- KEYS[4]  suspects  zset           worker with an expired lease → when to evict it; 0 or less: being returned
-- KEYS[5]  canceled  zset           name → token of the cancel
-- KEYS[6]  rounds    hash           worker → its last round; fence → the token after the last leave or eviction;
--                                lease → the longest lease of the members, ms
-- KEYS[7]  token     string         the last token issued
-- KEYS[8]  schedule  zset           entry → due, ms
-- KEYS[9]  contents  zset           "digest:entry" of tasks that wait in entries
-- KEYS[10] entries   hash           process → entry, or name and card of an added task; its name → process:worker
-- KEYS[11] ledger    hash           digest → workers that died holding it
-- KEYS[12] paused    string         present while the queue is paused
-- KEYS[13] holders   zset           worker that holds tasks → token up to which it has reported their cancels
-- KEYS[14] stopping  zset           "name:token:process" of running tasks that a cancel covers
-- KEYS[15] ages      zset           ms → how many tasks had been added to the list; drift → see lib_ages
-- KEYS[16] added     stream         waiting added tasks, in order
-- ARGV[1]  process   key prefix     of a processing list; its id is appended
-- ARGV[2]  working   key prefix     of what a worker runs, a zset process → token; its id is appended
-- ARGV[3]  cancel    key prefix     of the record of a cancel; its name is appended
-- ARGV[4]  wake      channel prefix with a worker appended
-- ARGV[5]  keyed     key prefix     of a schedule entry; its name is appended
local q = {
  waiting = KEYS[1], workers = KEYS[2], idle = KEYS[3], suspects = KEYS[4],
  canceled = KEYS[5], rounds = KEYS[6], token = KEYS[7], schedule = KEYS[8], contents = KEYS[9],
  entries = KEYS[10], ledger = KEYS[11], paused = KEYS[12],
  holders = KEYS[13], stopping = KEYS[14], ages = KEYS[15], added = KEYS[16],
  process = ARGV[1], working = ARGV[2], cancel = ARGV[3], wake = ARGV[4], keyed = ARGV[5],
}

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000) -- ms

-- How many bytes of payloads one call reads, moves or drops, unless the first has more.
local BYTES = 1048576

-- The deadline of a lease that never ends, 2^53 - 1, which every client can represent exactly.
local NEVER = 9007199254740991

-- Returns the last token issued, or nil if the key doesn't hold a valid token.
local function last_token()
  local token = tonumber(redis.pcall('GET', q.token) or 0) -- nil for an error, too
  if token and token == math.floor(token) and token >= 0 and token < NEVER then
    return token
  end
end

-- A full Redis refuses a script whose first write may need memory. Every script that must work on
-- a full Redis begins its writes with this one, which needs none.
local function first_write()
  redis.call('ZREM', q.suspects, '')
end

local function deadline_after(lease)
  if lease > 0 then
    return now + lease
  end
  return NEVER
end

-- Flags for what the queue has besides its list. Most queues have nothing or only a schedule, so
-- one command checks all these keys.
local canceling, suspecting, scheduled, keyed, counting, paused, adding = false, false, false, false, false, false, false
-- The error if a key of the schedule has the wrong type. Every script then fails before it changes
-- anything; only heartbeats continue.
local broken
local function size(command, key)
  local n = redis.pcall(command, key)
  if type(n) == 'number' then
    return n
  end
  broken = n
  return 0
end
if redis.call('EXISTS', q.schedule, q.contents, q.entries, q.canceled, q.suspects, q.ledger, q.paused, q.added) > 0 then
  scheduled = size('ZCARD', q.schedule) > 0 -- something waits in the schedule
  size('ZCARD', q.contents)
  keyed = size('HLEN', q.entries) > 0 -- tasks from the schedule or added tasks run
  adding = size('XLEN', q.added) > 0 -- added tasks wait
  if redis.call('EXISTS', q.canceled, q.suspects, q.ledger, q.paused) > 0 then
    canceling = redis.call('ZCARD', q.canceled) > 0
    suspecting = redis.call('ZCARD', q.suspects) > 0
    counting = size('HLEN', q.ledger) > 0 -- workers died
    paused = redis.call('EXISTS', q.paused) == 1
  end
end
