-- haul: move a page of the first committed batch to the back of the queue, in order, and
-- wake as many idle workers. Anybody may call it, any number of times. Batches whose
-- tasks are gone or overwritten are put aside instead, a hundred a call.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] batches  zset     ids of batches that are committed, in their order
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] batch    key prefix of a batch, with its id appended
-- Uses lib_wake, lib_batch.
--
-- Returns {left, damaged}: how many batches are still to move, and the ids of those set aside.
local PAGE, BYTES, DAMAGED = 2000, 1048576, 100
redis.call('ZREM', KEYS[3], '') -- needs no memory, so what follows may, on a full Redis too
local batch, damaged = nil, {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[3], '-inf', UNMOVED, 'BYSCORE', 'LIMIT', 0, DAMAGED)) do
  local length = redis.pcall('LLEN', ARGV[2] .. id)
  if type(length) == 'number' and length > 0 then
    batch = id
    break
  end
  redis.call('ZADD', KEYS[3], PUT_ASIDE, id)
  damaged[#damaged + 1] = string.sub(id, 1, 64)
end
if batch and #damaged == 0 then -- else the next call moves: what was put aside is told, whatever fails then
  local key, moved, bytes = ARGV[2] .. batch, 0, 0 --! page constant.2
  while moved < PAGE and bytes < BYTES do
    local payload = redis.call('LMOVE', key, KEYS[1], 'RIGHT', 'LEFT') --! guard haul-order side.1
    if not payload then
      break
    end
    moved, bytes = moved + 1, bytes + #payload
  end
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', KEYS[3], batch)
  end
  wake(KEYS[2], ARGV[1], moved)
end
return { unmoved(KEYS[3]), damaged }
