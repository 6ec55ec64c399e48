-- agree: raise what the fleet speaks to what a peer speaks, and to the oldest that it can
-- work beside. Neither goes back.
--
-- KEYS[1] protocol  string  two numbers of up to four digits, with a colon between them
-- ARGV[1] newest    that the peer speaks
-- ARGV[2] oldest    that it can work beside
--
-- Returns what is there then.
local newest, oldest = tonumber(ARGV[1]), tonumber(ARGV[2])
local there = redis.call('GETRANGE', KEYS[1], 0, 9) --! excess constant.2
local n, o = string.match(there, '^(%d%d?%d?%d?):(%d%d?%d?%d?)$')
if n then
  newest, oldest = math.max(newest, tonumber(n)), math.max(oldest, tonumber(o))
end
local spoken = newest .. ':' .. oldest
redis.call('DEL', KEYS[1]) -- needs no memory, so what follows may, on a full Redis too
redis.call('SET', KEYS[1], spoken)
return spoken
