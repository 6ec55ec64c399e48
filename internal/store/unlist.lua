-- unlist: remove a queue's name from the list of queues if the queue has no keys.
-- It checks and removes in one step: however late a copy of unlist arrives, it sees the keys of
-- every earlier enqueue, and a later enqueue to the empty queue lists the name again.
--
-- KEYS[1] registry  set  the list
-- KEYS[2] used      the first of several keys; at least one exists while the queue is in use
-- ARGV[1] name      of the queue
--
-- Returns 1 if it was on the list.
if redis.call('EXISTS', KEYS[2], unpack(KEYS, 3)) > 0 then
  return 0
end
return redis.call('SREM', KEYS[1], ARGV[1])
