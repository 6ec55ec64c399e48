-- delete: drop all waiting tasks. Running and failed tasks stay. The first call drops the list.
-- Each call then handles one page of added tasks and entries: up to 50 tasks or 1 MiB of payloads.
--
-- ARGV[6] delete   channel  gets a message that the queue was deleted
-- ARGV[7] list     1 on the first call; otherwise 0: the list stays
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added.
--
-- Returns how many tasks are left.
if broken then
  return broken
end
if ARGV[7] == '1' then
  redis.call('LLEN', q.waiting) -- if the key has the wrong type, fail before anything changes
  redis.call('UNLINK', q.waiting, q.ledger, q.ages)
  redis.pcall('PUBLISH', ARGV[6], '')
end
local bytes, waits = 0, 0
if adding then
  local ids = {}
  added.each('+', function(id, pair)
    if #ids >= 50 or bytes >= BYTES then
      return false
    end
    local ms, seq, salt, card = cards.item(id, pair)
    ids[#ids + 1], bytes = id, bytes + #pair[2]
    if ms and cards.keeps(card) > 0 then
      cards.tell_end(cards.entry(ms, seq, salt))
    end
    if ms and cards.has(card, cards.apart) then
      redis.call('UNLINK', q.keyed .. cards.entry(ms, seq, salt))
    end
    return true
  end)
  waits = added.drop(ids)
end
for _, member in ipairs(redis.call('ZRANGE', q.contents, 0, 49)) do
  if bytes >= BYTES then
    break
  end
  local digest, entry = string.sub(member, 1, 40), string.sub(member, 42)
  local payload, card = unwait(q, entry, digest)
  if card and cards.keeps(card) > 0 then
    cards.tell_end(entry)
  end
  bytes = bytes + #(payload or '')
  redis.call('ZREM', q.contents, member)
end
return redis.call('ZCARD', q.contents) + waits
