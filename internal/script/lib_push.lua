-- lib_push: add ARGV[from] and what follows to the back of a queue. Returns how
-- many waited before.
local function push(waiting, idle, channel, observers, from)
  local count, size = #ARGV - from + 1, 0
  for i = from, #ARGV, 5000 do -- unpack has a limit
    size = redis.call('LPUSH', waiting, unpack(ARGV, i, math.min(i + 4999, #ARGV)))
  end
  wake(idle, channel, count)
  redis.pcall('PUBLISH', observers, count)
  return size - count
end
