-- put: give a key something to do, or change what waits under it. While the key
-- runs, what is put is blocked until that ends.
--
-- ARGV[6]  entry
-- ARGV[7]  payload
-- ARGV[8]  at      ms; 0 now
-- ARGV[9]  when    always, never, later or earlier: whether the time of what waits changes
-- ARGV[10] keep    1: the payload of what waits stays
-- ARGV[11] counts  1: its counts stay
-- ARGV[12] enqueue channel told the count, for observers
-- ARGV[13] digest  of a large payload; "", or left out: it is computed
-- Uses lib_queue, lib_wake, lib_entry.
--
-- Returns 1 when there is something new to do, or 2 where nothing else waits and nobody
-- serves the queue; 0 when what waited was changed.
local entry, payload, at, when = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]
local keep, counts = ARGV[10] == '1', ARGV[11] == '1'
local key = q.keyed .. entry
local process, waiting, due, retries, crashes, kept, counted, low, high, digest = unpack(redis.call('HMGET', key,
  'process', 'payload', 'due', 'retries', 'crashes', 'keep', 'counts', 'low', 'high', 'digest'))
if broken then
  return broken
end
if at == 0 then
  at = now
end
digests.of_entry(q, entry, waiting, digest)
digests.name(payload, ARGV[13])

-- A rule bounds the time of what waits; two in a row are one such rule again.
local bounds = { always = { at, at }, never = { 0, NEVER }, later = { at, NEVER }, earlier = { 0, at } } --! between constant
local function apply(time)
  return math.min(math.max(time, bounds[when][1]), bounds[when][2])
end

local moves, stay = true, keep or counts
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
if payload ~= waiting then --! look true
  if waiting then
    redis.call('ZREM', q.contents, digest_of(waiting) .. ':' .. entry)
    redis.call('HDEL', key, 'digest')
  end
  digests.keep(key, payload)
  redis.call('ZADD', q.contents, 0, digest_of(payload) .. ':' .. entry)
end
if process then --! guard blocks false
  redis.call('HSET', key, 'keep', keep and 1 or 0, 'counts', stay and 1 or 0, 'low', low, 'high', high)
elseif moves then
  plan(q, entry, due)
  if not paused then
    alert(q, 0)
  end
end
if not waiting then
  redis.pcall('PUBLISH', ARGV[12], 1)
end
if waiting then
  return 0
end
return redis.call('EXISTS', q.waiting, q.workers) == 0 and redis.call('ZCARD', q.contents) == 1 and 2 or 1
