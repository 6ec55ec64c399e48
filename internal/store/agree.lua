-- agree: raise the fleet's protocol version to the peer's, and the fleet's oldest compatible
-- version to the peer's. Neither is ever lowered.
--
-- KEYS[1] protocol  string  two numbers of up to four digits, with a colon between them
-- ARGV[1] newest    version that the peer speaks
-- ARGV[2] oldest    version that it can work with
--
-- Returns the new value of the key.
local newest, oldest = tonumber(ARGV[1]), tonumber(ARGV[2])
local there = redis.call('GETRANGE', KEYS[1], 0, 9)
local n, o = string.match(there, '^(%d%d?%d?%d?):(%d%d?%d?%d?)$')
if n then
  newest, oldest = math.max(newest, tonumber(n)), math.max(oldest, tonumber(o))
end
local spoken = newest .. ':' .. oldest
redis.call('DEL', KEYS[1]) -- needs no memory, so later writes are allowed even if Redis is full
redis.call('SET', KEYS[1], spoken)
return spoken
