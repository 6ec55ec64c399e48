-- lib_open: wakes idle workers for all that waits, when nothing keeps tasks from starting anymore.
local function tell_all()
  local function count(command, key)
    local n = redis.pcall(command, key)
    return type(n) == 'number' and n or 0
  end
  startable = count('LLEN', q.queues) + count('ZCARD', q.ready) + count('ZCARD', q.risky)
  earliest = tonumber(redis.pcall('ZRANGE', q.schedule, 0, 0, 'WITHSCORES')[2]) or math.huge
  tell()
end
