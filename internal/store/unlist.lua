-- unlist: take a queue's name off the list of queues if the queue has no keys.
-- It looks and removes in one step. So it sees every earlier call, however late a copy
-- of it arrives, and a later call that finds the queue alone lists it again.
--
-- KEYS[1] registry  set  the list
-- KEYS[2] used      the first of the keys, one of which exists while the queue is in use
-- ARGV[1] name      of the queue
--
-- Returns 1 if it was on the list.
if redis.call('EXISTS', KEYS[2], unpack(KEYS, 3)) > 0 then
  return 0
end
return redis.call('SREM', KEYS[1], ARGV[1])
