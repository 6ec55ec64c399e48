-- delete: drop what waits and the locks on it. What runs is not touched. The
-- first call (cursor 0) does all but clean up; then one page of locks a call.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] unique   hash     digest → "w:position" or "p:process"; offset → position of the front
-- ARGV[1] delete   channel  told that the queue was deleted
-- ARGV[2] cursor   of the page
-- ARGV[3] first    1 on the first call
--
-- Returns the next cursor, "0" after the last page.
local waiting, unique = KEYS[1], KEYS[2]
local offset = tonumber(redis.call('HGET', unique, 'offset') or nil)
if ARGV[3] == '1' then
  local length = redis.call('LLEN', waiting)
  redis.call('UNLINK', waiting)
  if offset then
    offset = offset + length -- so every lock on a place in the list is stale
    redis.call('HSET', unique, 'offset', offset)
  end
  redis.pcall('PUBLISH', ARGV[1], '')
end
if not offset then
  return '0'
end
local page = redis.call('HSCAN', unique, ARGV[2], 'COUNT', 1000)
local locks = page[2]
for i = 1, #locks, 2 do
  local position = tonumber(string.match(locks[i + 1], '^w:(.+)'))
  if position and position < offset then
    redis.call('HDEL', unique, locks[i])
  end
end
if redis.call('HLEN', unique) == 1 then
  redis.call('DEL', unique)
end
return page[1]
