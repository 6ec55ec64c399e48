-- remove: what waits under an entry goes. What runs is not touched.
--
-- ARGV[6] entry
-- Uses lib_queue, lib_wake, lib_entry.
--
-- Returns 1, or 0 when nothing waited.
local entry = ARGV[6]
if redis.call('HEXISTS', q.keyed .. entry, 'payload') == 0 then
  return 0
end
if broken then
  return broken
end
unwait(q, entry)
return 1
