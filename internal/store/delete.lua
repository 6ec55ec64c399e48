-- delete: drop all waiting tasks and their locks.
-- Running and failed tasks stay. The first call does everything that takes a single command.
-- Each call then handles one page each of locks, added tasks and entries: up to 50
-- tasks or 1 MiB of payloads.
--
-- ARGV[6] delete   channel  gets a message that the queue was deleted
-- ARGV[7] cursor   of the page of locks
-- ARGV[8] list     1 on the first call; otherwise 0: the list stays
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added.
--
-- Returns {cursor, left}: the next cursor, and how many tasks are left; "0" and 0 after the last page.
local RUNNING = 16777216 -- more tasks than ever run at the same time
if broken then
  return broken
end
if ARGV[8] == '1' then
  local length = redis.call('LLEN', q.waiting)
  redis.call('UNLINK', q.waiting, q.ledger, q.ages)
  if offset then
    -- This makes every lock on a list position stale. They stay stale while running tasks
    -- return to the front, since those get lower positions.
    offset = offset + length + redis.call('ZCARD', q.gaps) + RUNNING
    redis.call('UNLINK', q.gaps)
    redis.call('HSET', q.unique, 'offset', offset)
  end
  redis.pcall('PUBLISH', ARGV[6], '')
end
local bytes, waits = 0, 0
if adding then
  local ids = {}
  added.each('+', function(id, pair)
    if #ids >= 50 or bytes >= 1048576 then
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
  if bytes >= 1048576 then
    break
  end
  local digest, entry = string.sub(member, 1, 40), string.sub(member, 42)
  local payload, card = unwait(q, entry, digest)
  if card and cards.keeps(card) > 0 then
    cards.tell_end(entry)
  end
  bytes = bytes + #(payload or '')
  redis.call('ZREM', q.contents, member)
  if offset and redis.call('HGET', q.unique, digest) == 'e:' .. entry then
    redis.call('HDEL', q.unique, digest)
  end
end
local left = redis.call('ZCARD', q.contents) + waits
if not offset then
  return { '0', left }
end
local page = redis.call('HSCAN', q.unique, ARGV[7], 'COUNT', 100)
local locks = page[2]
for i = 1, #locks, 2 do
  local position = tonumber((string.match(locks[i + 1], '^w:(.+)')))
  if position and position < offset then
    redis.call('HDEL', q.unique, locks[i])
  end
end
if redis.call('HLEN', q.unique) == 1 then
  redis.call('UNLINK', q.unique, q.gaps)
end
return { page[1], left }
