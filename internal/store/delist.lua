-- delist: take a worker off the list of peers if its registration has expired. One
-- that comes back at the same moment writes its registration before its name.
--
-- KEYS[1] peers   set   the list
-- KEYS[2] worker  hash  the registration
-- ARGV[1] id      of the worker
--
-- Returns 1 if it was on the list.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
return redis.call('SREM', KEYS[1], ARGV[1])
