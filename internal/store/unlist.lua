-- unlist: remove a name from a list of the fleet: that of a queue without keys, or that of a worker whose registration
-- has expired. It checks and removes in one step. However late a copy arrives, it sees the keys of every earlier call,
-- and who writes such a key later lists the name again.
--
-- KEYS     the list, a set; those of which one exists while the name is in use; and one that never exists
-- ARGV[1]  name
--
-- Returns 1 if it was on the list.
if redis.call('EXISTS', unpack(KEYS, 2)) > 0 then
  return 0
end
return redis.call('SREM', KEYS[1], ARGV[1])
