-- enqueue: add payloads to the back of a queue, in order, all or none, and
-- wake as many idle workers. Nothing is published to workers when none is idle.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] workers  zset     worker → lease deadline, ms
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] enqueue  channel  gets the count, for observers
-- ARGV[3] payload  the first of one or more
-- Uses lib_wake, lib_push.
--
-- Returns how many tasks were waiting before; -1 if none were and no worker serves the queue.
local at = 3
local before, alone = push(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], at)
return alone and -1 or before
