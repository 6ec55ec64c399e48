-- agree: raise the fleet's protocol version to the peer's, and the fleet's oldest compatible version to the peer's.
-- Neither is ever lowered.
--
-- KEYS     protocol, "newest:oldest", each of up to four digits; and one that never exists
-- ARGV[1]  newest  version that the peer speaks
-- ARGV[2]  oldest  version that it can work with
--
-- Returns the new value of the key.
local newest, oldest = tonumber(ARGV[1]), tonumber(ARGV[2])
local n, o = string.match(redis.call('GETRANGE', KEYS[1], 0, 9), '^(%d%d?%d?%d?):(%d%d?%d?%d?)$')
if n then
  newest, oldest = math.max(newest, tonumber(n)), math.max(oldest, tonumber(o))
end
redis.call('DEL', KEYS[1]) -- as in register
redis.call('SET', KEYS[1], newest .. ':' .. oldest)
return newest .. ':' .. oldest
