-- resume: end a pause and wake idle workers for waiting and due tasks.
--
-- Uses lib_later, lib_queue, lib_wake, lib_entry.
if broken then
  return broken
end
redis.call('DEL', q.paused)
local waiting = redis.pcall('LLEN', q.waiting)
waiting = type(waiting) == 'number' and waiting or 0
if adding then
  waiting = waiting + redis.call('XLEN', q.added)
end
if scheduled then
  waiting = waiting + redis.call('ZCOUNT', q.schedule, '-inf', now)
  q.earlier = true -- during the pause, no worker was sent the time of the next entry
end
alert(q, waiting)
return 1
