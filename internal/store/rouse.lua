-- rouse: wake idle workers for tasks pushed without a script.
--
-- KEYS[1] idle   zset     worker → idle since, ms
-- ARGV[1] wake   channel  prefix, with a worker appended
-- ARGV[2] count  of the tasks
-- Uses lib_wake.
--
-- Returns how many were woken.
return wake(KEYS[1], ARGV[1], tonumber(ARGV[2]))
