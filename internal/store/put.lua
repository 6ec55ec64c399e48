-- put: schedule a task under a key, or change the one that waits there. While a task of the
-- key runs, the new one is blocked until that run ends.
--
-- KEYS[17] once    string  the mark of the nonce, with a TTL: the entry, or the name of an added task
-- ARGV[6]  entry
-- ARGV[7]  payload
-- ARGV[8]  at      ms; 0: now
-- ARGV[9]  when    whether the time of the waiting task changes: always, never, later or earlier; or
--                  extra: always, and an occurrence runs in addition to those of its schedule;
--                  unique: nothing changes, and the call fails if a task of the entry waits or runs
-- ARGV[10] keep    1: the waiting task keeps its payload
-- ARGV[11] counts  1: it keeps its counts
-- ARGV[12] enqueue channel that gets the count, for observers
-- ARGV[13] card    "": none. The time of the put is added to a card
-- ARGV[14] by_key  1: the task is known only by its key, so a cancel of the payload doesn't
--                  affect it
-- ARGV[15] window  how long the mark lasts, in ms; 0: no mark
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added.
--
-- Returns {fresh, first}: 1 if there is a new task, or 2 if nothing else is waiting and no worker
-- serves the queue; 0 if the waiting task was changed; and the content of the mark, if it existed
-- and so nothing was done, otherwise "".
local entry, payload, at, when = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]
local keep, counts, card, window = ARGV[10] == '1', ARGV[11] == '1', ARGV[13], tonumber(ARGV[15])
local key = q.keyed .. entry
if window > 0 then
  local mark = redis.call('GET', KEYS[17])
  if mark then
    return { 0, mark }
  end
end
if broken then
  return broken
end
if adding or keyed then
  added.lift(entry)
end
local process, waiting, due, retries, crashes, kept, counted, low, high, digest, failure, had, held, withheld = unpack(redis.call('HMGET', key,
  'process', 'payload', 'due', 'retries', 'crashes', 'keep', 'counts', 'low', 'high', 'digest', 'error', 'card', 'held', 'withheld'))
if at == 0 then
  at = now
end
if when == 'unique' and (waiting or process) then
  return redis.error_reply('DUPLICATE an equal unique task is waiting or running')
end
digests.of_entry(q, entry, waiting, digest)
digests.name(payload, ARGV[14] == '1' and redis.sha1hex(entry))

-- A rule bounds the time of the waiting task. Two rules, one after the other, make one rule.
local bounds = { always = { at, at }, extra = { at, at }, unique = { at, at }, never = { 0, NEVER }, later = { at, NEVER }, earlier = { 0, at } }
local function apply(time)
  return math.min(math.max(time, bounds[when][1]), bounds[when][2])
end

local moves, stay, same = true, keep or counts, keep and waiting
if not waiting then
  due, retries, crashes = at, 0, 0
  low, high = bounds[when][1], bounds[when][2]
else
  local before = number(due)
  due = apply(before)
  moves = due ~= before
  if keep then
    payload = waiting
  end
  retries, crashes = stay and number(retries) or 0, stay and number(crashes) or 0
  low, high = apply(number(low)), apply(number(high or NEVER))
  stay = stay and counted == '1'
  keep = keep and kept == '1'
end

redis.call('HSET', key, 'payload', payload, 'due', due, 'retries', retries, 'crashes', crashes)
if payload ~= waiting then
  if waiting then
    redis.call('ZREM', q.contents, digest_of(waiting) .. ':' .. entry)
    redis.call('HDEL', key, 'digest')
  end
  digests.keep(q, entry, payload)
  redis.call('ZADD', q.contents, 0, digest_of(payload) .. ':' .. entry)
end
if card ~= '' and not same then
  redis.call('HSET', key, 'card', cards.dated(card, now))
elseif waiting and not same then
  redis.call('HDEL', key, 'card')
end
if waiting and not same and cards.keeps(held or '') == 0 then -- else the running task's end comes first
  cards.replaced(entry, had, card)
end
if failure and waiting and not process and not same and not counts then
  redis.call('HDEL', key, 'error')
end
-- An extra occurrence has its own time, so that the occurrence it replaces is planned again when
-- it starts.
local turn = when == 'extra' and redis.call('HGET', key, 'turn')
local course = turn and courses.of(entry)
if course and number(turn) > course.passed then
  redis.call('HSET', key, 'turn', math.min(number(turn), math.max(now, course.passed + 1)))
end
if process then
  redis.call('HSET', key, 'keep', keep and 1 or 0, 'counts', stay and 1 or 0, 'low', low, 'high', high)
elseif moves then
  if withheld then -- it has its own time now
    redis.call('HDEL', key, 'withheld')
  end
  plan(q, entry, due)
  if not paused then
    alert(q, 0)
  end
end
if not waiting then
  redis.pcall('PUBLISH', ARGV[12], 1)
end
if window > 0 then
  redis.call('SET', KEYS[17], entry, 'PX', window)
end
if waiting then
  return { 0, '' }
end
local alone = redis.call('EXISTS', q.waiting, q.workers, q.added) == 0 and redis.call('ZCARD', q.contents) == 1
return { alone and 2 or 1, '' }
