-- remove: drop the task waiting under an entry. A running one isn't affected.
--
-- ARGV[6] entry
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added, lib_recur.
--
-- Returns 1, or 0 if no task was waiting.
local entry = ARGV[6]
if redis.call('HEXISTS', q.keyed .. entry, 'payload') == 0 and not adding then
  return 0
end
if broken then
  return broken
end
local removed, card = courses.take_away(entry, 'removed')
cards.ended(entry, card, 'removed', '', '')
return removed and 1 or 0
