-- requeue: put failed tasks back, with their counts at zero: at the back of the
-- queue or, if a task has a key, under that key, due at once, unless a task is waiting
-- or running there. An expiry time that has passed is dropped.
--
-- ARGV[6] head     start of the failed queue's key names
-- ARGV[7] tail     end of these names
-- ARGV[8] enqueue  channel that gets the count, for observers
-- ARGV[9] entry    in the failed queue, the first of one or more
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_settle, lib_failed.
--
-- A call ends early once it has moved a MiB. The caller then repeats it for the others.
--
-- Returns {requeued, looked}: how many it requeued, and how many of the names it looked at.
local failed = failed_queue(ARGV[6], ARGV[7])
local channel = ARGV[8]
local at = 9
redis.call('LLEN', q.waiting) -- if a key has the wrong type, fail before anything changes
redis.call('ZCARD', failed.schedule)
redis.call('ZCARD', failed.contents)
if broken then
  return broken
end

-- Returns the card without an expiry time that has passed.
local function unexpired(card)
  local ends = card and cards.has(card, cards.expires) and tonumber(string.sub(card, 2, 17))
  if ends and ends <= now then
    return cards.with(string.sub(card, 1, 1) .. string.sub(card, 18), cards.expires, false)
  end
  return card
end

local requeued, looked, bytes = 0, 0, 0
for i = at, #ARGV do
  local entry = ARGV[i]
  local key = failed.keyed .. entry
  local from, process, card = unpack(redis.pcall('HMGET', key, 'from', 'process', 'card'))
  local size = redis.pcall('HSTRLEN', key, 'payload')
  size = type(size) == 'number' and size or 0
  if bytes > 0 and bytes + size > BYTES then
    break
  end
  looked = looked + 1
  from = from or ''
  local free = not process and (size > 0 or redis.pcall('HEXISTS', key, 'payload') == 1)
  if free and from ~= '' then
    free = redis.call('EXISTS', q.keyed .. from) == 0
  end
  if free then
    bytes = bytes + size
    local payload = unwait(failed, entry)
    if from == '' then
      redis.call('LPUSH', q.waiting, payload)
    else
      await(q, from, payload, now, 0, 0, unexpired(card))
      if card and cards.keeps(card) > 0 then
        redis.pcall('DEL', cards.record_of(from))
      end
      plan(q, from, now)
    end
    requeued = requeued + 1
  end
end
if requeued > 0 then
  alert(q, requeued)
  redis.pcall('PUBLISH', channel, requeued)
end
return { requeued, looked }
