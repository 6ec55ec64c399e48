-- lib_push: add ARGV[from] and what follows to the back of a queue.
local function push(waiting, idle, channel, observers, from)
  local count = #ARGV - from + 1
  for i = from, #ARGV, 5000 do -- unpack has a limit
    redis.call('LPUSH', waiting, unpack(ARGV, i, math.min(i + 4999, #ARGV)))
  end
  wake(idle, channel, count)
  redis.pcall('PUBLISH', observers, count)
end
