-- haul: move a page of the first committed batch to the back of the queue, in order, and
-- wake as many idle workers. Any peer may call it, any number of times. Batches whose
-- tasks are gone or overwritten are set aside instead, up to a hundred per call.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] batches  zset     ids of committed batches, in order
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] batch    key prefix of a batch; its id is appended
-- Uses lib_wake, lib_batch.
--
-- Returns {left, damaged}: how many batches haven't been moved yet, and the ids of those set aside.
local PAGE, BYTES, DAMAGED = 2000, 1048576, 100
redis.call('ZREM', KEYS[3], '') -- needs no memory, so later writes are allowed even if Redis is full
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
if batch and #damaged == 0 then -- otherwise the next call moves: its errors must not hide the damaged ids
  local key, moved, bytes = ARGV[2] .. batch, 0, 0
  while moved < PAGE and bytes < BYTES do
    local payload = redis.call('LMOVE', key, KEYS[1], 'RIGHT', 'LEFT')
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
