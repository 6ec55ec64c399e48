-- enqueue: put raw tasks at the back of the list, in order, all or none. A call with a known nonce changes nothing.
-- Producers that may do nothing else need no other keys.
--
-- KEYS    queues idle workers, once: the nonce's, and one that never exists
-- ARGV[1] channel  channel prefix, "worqr_{q}_"
-- ARGV[2] window   for how many ms the nonce is known; 0: there is none
-- then the payloads, one to 5,000.
-- Uses lib_wake.
--
-- Returns 1; 2 if the list was empty and nobody serves the queue, so it may not be registered; or 0: the nonce is known.
local list, idle, workers, once = unpack(KEYS)
local channel, window = ARGV[1], tonumber(ARGV[2])
local FIRST, MOST = 3, 5000
local count = #ARGV - FIRST + 1

if count > MOST then
  return redis.error_reply('TOOLARGE a call has at most ' .. MOST .. ' payloads')
end
if window > 0 and redis.call('EXISTS', once) == 1 then
  return 0
elseif window > 0 then
  redis.call('SET', once, '', 'XX', 'PX', window) -- sets nothing, but fails here if SET is denied or the window is wrong
end

local length = redis.call('LPUSH', list, unpack(ARGV, FIRST))
if window > 0 then
  redis.call('SET', once, '1', 'PX', window)
end

if length - count <= 64 then -- otherwise all who were idle have been woken
  wake(idle, channel, count)
end
redis.pcall('PUBLISH', channel .. 'enqueue', count)
return length == count and redis.pcall('EXISTS', workers) == 0 and 2 or 1
