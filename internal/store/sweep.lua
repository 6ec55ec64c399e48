-- sweep: looks once for workers whose lease has expired. The caller doesn't need to be a member.
--
-- ARGV[6] grace  ms between suspecting and evicting
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_settle, lib_return, lib_ages.
--
-- Returns {failed, returned, again, due}, as look does.
if broken then
  return broken
end
first_write()
local failed, returned, again, due = returns.look(tonumber(ARGV[6]), true)
trim_log()
end_ages()
return { failed, returned, again, due }
