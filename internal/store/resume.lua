-- resume: end a pause and wake idle workers for what waits and is due.
--
-- Uses lib_later, lib_queue, lib_wake, lib_entry.
if broken then
  return broken
end
redis.call('DEL', q.paused)
local waiting = redis.pcall('LLEN', q.waiting)
waiting = type(waiting) == 'number' and waiting or 0
if adding then --! look true
  waiting = waiting + redis.call('XLEN', q.added)
end
if scheduled then
  waiting = waiting + redis.call('ZCOUNT', q.schedule, '-inf', now)
  q.earlier = true -- no worker learned the time during the pause
end
alert(q, waiting)
return 1
