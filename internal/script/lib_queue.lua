-- lib_queue: the keys and names that the scripts of a queue's members share.
--
-- KEYS[1] waiting   list           payloads; the tail is the front
-- KEYS[2] workers   zset           worker → lease deadline, ms
-- KEYS[3] idle      zset           worker → idle since, ms
-- KEYS[4] suspects  zset           lapsed worker → when to fail it; 0 or less: being returned
-- KEYS[5] canceled  zset           digest → token of the cancel
-- KEYS[6] rounds    hash           worker → its last round
-- KEYS[7] unique    hash           digest → "w:position" or "p:process"; offset → position of the front
-- KEYS[8] token     string         the last token given
-- ARGV[1] process   key prefix     a processing list, with its id appended
-- ARGV[2] working   key prefix     what a worker runs: zset process → token
-- ARGV[3] cancel    key prefix     who must acknowledge a cancel, with its digest appended
-- ARGV[4] wake      channel prefix with a worker appended
local q = {
  waiting = KEYS[1], workers = KEYS[2], idle = KEYS[3], suspects = KEYS[4],
  canceled = KEYS[5], rounds = KEYS[6], unique = KEYS[7], token = KEYS[8],
  process = ARGV[1], working = ARGV[2], cancel = ARGV[3], wake = ARGV[4],
}

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The deadline of a lease that never ends; every client reads it exactly.
local NEVER = 9007199254740991

-- The last token given, or nil when it is no such number.
local function last_token()
  local token = tonumber(redis.call('GET', q.token) or 0)
  if token and token == math.floor(token) and token >= 0 and token < NEVER then
    return token
  end
end

-- A full Redis refuses a script whose first write may need memory. So every
-- script that must work there starts its writes with one that needs none.
local function first_write()
  redis.call('ZREM', q.suspects, '')
end

local function deadline_after(lease)
  if lease > 0 then
    return now + lease
  end
  return NEVER
end
