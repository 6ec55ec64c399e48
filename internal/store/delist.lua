-- delist: remove a worker from the list of peers if its registration has expired. A worker
-- that comes back at the same moment writes its registration before adding its name.
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
