-- requeue: failed tasks are to be done after all, with counts that begin anew:
-- at the back of the queue, or under their key at once, unless something waits or
-- runs there.
--
-- ARGV[6] head     of the keys of the failed queue
-- ARGV[7] tail     likewise
-- ARGV[8] enqueue  channel told the count, for observers
-- ARGV[9] the entries in the failed queue
-- Uses lib_queue, lib_wake, lib_entry, lib_settle, lib_failed.
--
-- Returns how many.
local failed = failed_queue(ARGV[6], ARGV[7])
local channel = ARGV[8]
local at = 9
redis.call('LLEN', q.waiting) -- of another type: fail before anything changes
redis.call('ZCARD', failed.schedule)
redis.call('ZCARD', failed.contents)
if broken then
  return broken
end
local requeued = 0
for i = at, #ARGV do
  local grave = ARGV[i]
  local payload, from, process = unpack(redis.pcall('HMGET', failed.keyed .. grave, 'payload', 'from', 'process'))
  from = from or ''
  local free = payload and not process
  if free and from ~= '' then
    free = redis.call('EXISTS', q.keyed .. from) == 0
  end
  if free then
    unwait(failed, grave)
    if from == '' then
      redis.call('LPUSH', q.waiting, payload)
    else
      await(q, from, payload, now, 0, 0)
      plan(q, from, now)
    end
    requeued = requeued + 1
  end
end
if requeued > 0 then
  alert(q, requeued)
  redis.pcall('PUBLISH', channel, requeued)
end
return requeued
