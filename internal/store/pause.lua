-- pause: keep every worker from starting tasks of the queue.
--
-- KEYS[1] paused  string  present while the queue is paused
redis.call('DEL', KEYS[1]) -- needs no memory, so later writes are allowed even if Redis is full
redis.call('SET', KEYS[1], '1')
return 1
