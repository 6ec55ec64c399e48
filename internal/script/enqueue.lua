-- enqueue: add payloads to the back of a queue, in order, all or none, and
-- wake as many idle workers. Nothing is published to workers when none is idle.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] enqueue  channel  told the count, for observers
-- ARGV[3] payload  the first of one or more
-- Uses lib_wake, lib_push.
push(KEYS[1], KEYS[2], ARGV[1], ARGV[2], 3)
return 1
