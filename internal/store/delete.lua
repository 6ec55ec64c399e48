-- delete: drop all waiting tasks, including those in committed batches, and their locks.
-- Running and failed tasks stay. The first call does everything that takes a single command.
-- Each call then handles one page each of locks, batches, added tasks and entries: up to 50
-- tasks or 1 MiB of payloads. A batch's key is deleted whatever its type. As long as batches
-- are left, peers may move them to the list, so the next call deletes the list again, and
-- starts over with the locks.
--
-- KEYS[19] batches zset    ids of committed batches, in order
-- ARGV[6] delete   channel  gets a message that the queue was deleted
-- ARGV[7] cursor   of the page of locks
-- ARGV[8] list     1 on the first call; 2 if the previous one left batches; otherwise 0: the list stays
-- ARGV[9] batch    key prefix of a batch; its id is appended
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added.
--
-- Returns {cursor, left, batches}: the next cursor, how many tasks and batches are left,
-- and how many of these are batches; "0", 0 and 0 after the last page.
local RUNNING = 16777216 -- more tasks than ever run at the same time
if broken then
  return broken
end
if ARGV[8] ~= '0' then
  local length = redis.call('LLEN', q.waiting)
  redis.call('UNLINK', q.waiting, q.ledger, q.ages)
  if offset then
    -- This makes every lock on a list position stale. They stay stale while running tasks
    -- return to the front, since those get lower positions.
    offset = offset + length + redis.call('ZCARD', q.gaps) + RUNNING
    redis.call('UNLINK', q.gaps)
    redis.call('HSET', q.unique, 'offset', offset)
  end
end
if ARGV[8] == '1' then
  redis.pcall('PUBLISH', ARGV[6], '')
end
local batches = redis.pcall('ZRANGE', KEYS[19], 0, 99)
if batches.err then
  redis.call('UNLINK', KEYS[19])
end
for _, id in ipairs(batches) do
  redis.call('UNLINK', ARGV[9] .. id)
  redis.call('ZREM', KEYS[19], id)
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
local others = redis.call('ZCARD', KEYS[19])
local left = redis.call('ZCARD', q.contents) + others + waits
if not offset then
  return { '0', left, others }
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
return { page[1], left, others }
