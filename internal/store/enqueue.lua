-- enqueue: add payloads to the back of a queue, in order, all or none, and
-- wake as many idle workers. Nothing is published to workers when none is idle.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] batches  zset     ids of committed batches, in order
-- KEYS[4] workers  zset     worker → lease deadline, ms
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] enqueue  channel  gets the count, for observers
-- ARGV[3] payload  the first of one or more
-- Uses lib_wake, lib_push, lib_batch.
--
-- Returns how many tasks were waiting before; -1 if none were and no worker serves the queue.
-- Fails with UNMOVED while a committed batch hasn't been moved to the queue yet.
local refusal = behind(KEYS[3])
if refusal then
  return refusal
end
local at = 3
local before, alone = push(KEYS[1], KEYS[2], KEYS[4], ARGV[1], ARGV[2], at)
return alone and -1 or before
