-- add: append tasks with cards to the stream of added tasks, in order, all or none, and wake
-- as many idle workers. A call repeated with the same nonce within its window does nothing.
--
-- KEYS[1] added    stream   waiting added tasks, in order
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] workers  zset     worker → lease deadline, ms
-- KEYS[4] waiting  list     payloads; the tail is the front
-- KEYS[5] once     string   the mark of the nonce, with a TTL: the name of the first task
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] enqueue  channel  gets the count, for observers
-- ARGV[3] keyed    key prefix of a schedule entry; its name is appended
-- ARGV[4] window   how long the mark lasts, in ms; 0: no mark
-- ARGV[5] salt     of the names: 13 hex digits, unique to this call
-- ARGV[6] task     card and payload of the first of one or more
-- Uses lib_later, lib_card, lib_wake, lib_append.
--
-- Returns {first, fresh}: the name of the first task, or the name stored in the mark; and 1,
-- or 2 if nothing was waiting and no worker serves the queue, or 0 for a repeated call.
local added, window, salt = KEYS[1], tonumber(ARGV[4]), ARGV[5]
if window > 0 then
  local mark = redis.call('GET', KEYS[5])
  if mark then
    return { mark, 0 }
  end
end
local at = 6
local count = (#ARGV - at + 1) / 2
local first = append(added, ARGV[3], salt, ARGV, at)
if type(first) == 'table' then
  return first
end
if window > 0 then
  redis.call('SET', KEYS[5], first, 'PX', window)
end
local woken = wake(KEYS[2], ARGV[1], count)
redis.pcall('PUBLISH', ARGV[2], count)
local alone = woken == 0 and redis.call('XLEN', added) == count and redis.pcall('EXISTS', KEYS[3], KEYS[4]) == 0
return { first, alone and 2 or 1 }
