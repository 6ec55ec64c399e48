-- lib_open: wakes idle workers for all that waits, when nothing keeps tasks from starting anymore.
local function tell_all()
  startable = count('LLEN', q.queues) + count('ZCARD', q.ready) + count('ZCARD', q.risky)
  earliest = tonumber(redis.pcall('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')[2]) or math.huge
  tell()
end
