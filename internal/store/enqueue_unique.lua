-- enqueue_unique: enqueue a payload unless an equal unique task is waiting or running.
-- lib_settle describes how locks follow their payload.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] unique   hash     digest → "w:position", "p:process" or "e:entry"; offset → position of the front
-- KEYS[4] gaps     zset     positions from which a cancel removed a payload
-- KEYS[5] workers  zset     worker → lease deadline, ms
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] enqueue  channel  gets the count, for observers
-- ARGV[3] payload  of the task
-- ARGV[4] digest   of a large payload; "" or omitted: it is computed
-- Uses lib_place, lib_wake, lib_push.
--
-- Returns 1, or 2 if nothing was waiting and no worker serves the queue. Fails with
-- DUPLICATE.
local waiting, unique, payload = KEYS[1], KEYS[3], ARGV[3]
local digest = ARGV[4]
if not digest or #digest ~= 40 or string.find(digest, '[^0-9a-f]') then
  digest = redis.sha1hex(payload)
end
local offset = tonumber(redis.call('HGET', unique, 'offset')) or 0
local removed = redis.call('ZCARD', KEYS[4])
local gaps = removed > 0 and KEYS[4]
local length = redis.call('LLEN', waiting)
local where = redis.call('HGET', unique, digest)
if where then
  local position = tonumber((string.match(where, '^w:(.+)')))
  local held = not position -- the task is running, or waits in the schedule
  local ahead = position and ahead_of(gaps, offset, position)
  if ahead and ahead >= 0 and ahead < length then
    held = redis.call('LINDEX', waiting, -ahead - 1) == payload
  end
  -- If the payload isn't at the lock's position, a program that doesn't handle locks has
  -- removed tasks. The lock moves to where the payload is now, if it's still in the list.
  if not held then
    local place = redis.call('LPOS', waiting, payload, 'RANK', -1)
    if place then
      redis.call('HSET', unique, digest, 'w:' .. position_of(gaps, offset, length - 1 - place, 0))
      held = true
    end
  end
  if held then
    return redis.error_reply('DUPLICATE an equal unique task is waiting or running')
  end
end
local at = 3
local _, alone = push(waiting, KEYS[2], KEYS[5], ARGV[1], ARGV[2], at, at)
redis.call('HSET', unique, 'offset', offset, digest, 'w:' .. offset + length + removed)
return alone and 2 or 1
