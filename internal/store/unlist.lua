-- unlist: take a queue's name off the list of queues if nothing is there of the queue.
-- It looks and removes at one moment. So what came before it is seen, however late a copy
-- of it arrives, and who comes after it to a queue that is alone lists it again.
--
-- KEYS[1] registry  set  the list
-- KEYS[2] used      of the keys of which one is there as long as the queue is in use, the first
-- ARGV[1] name      of the queue
--
-- Returns 1 if it was on the list and is not any more.
if redis.call('EXISTS', KEYS[2], unpack(KEYS, 3)) > 0 then
  return 0
end
return redis.call('SREM', KEYS[1], ARGV[1])
