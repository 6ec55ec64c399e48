-- lib_push: add ARGV[from] to ARGV[to] (by default the last one) to the back of a queue.
-- Returns how many tasks were waiting before, and whether the queue is alone: nothing was
-- waiting and no worker serves it, so it may just have been deleted, and its name may be
-- missing from the list of queues.
local function push(waiting, idle, workers, channel, observers, from, to)
  to = to or #ARGV
  local count, size = to - from + 1, 0
  for i = from, to, 5000 do -- unpack has a limit
    size = redis.call('LPUSH', waiting, unpack(ARGV, i, math.min(i + 4999, to)))
  end
  local woken = wake(idle, channel, count)
  redis.pcall('PUBLISH', observers, count)
  return size - count, size == count and woken == 0 and redis.pcall('EXISTS', workers) == 0
end
