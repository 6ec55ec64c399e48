-- haul: move a page of the first committed batch to the back of the queue, in order, and
-- wake as many idle workers. Anybody may call it, any number of times.
--
-- KEYS[1] waiting  list     payloads; the tail is the front
-- KEYS[2] idle     zset     worker → idle since, ms
-- KEYS[3] batches  list     ids of batches that are committed; the tail is the first
-- ARGV[1] wake     channel  prefix, with a worker appended
-- ARGV[2] batch    key prefix of a batch, with its id appended
-- Uses lib_wake.
--
-- Returns how many batches are left.
local PAGE, BYTES = 2000, 1048576
local id = redis.call('LINDEX', KEYS[3], -1)
if not id then
  return 0
end
local batch, moved, bytes = ARGV[2] .. id, 0, 0
redis.call('PERSIST', batch) -- needs no memory, so what follows may, on a full Redis too
while moved < PAGE and bytes < BYTES do
  local payload = redis.call('LMOVE', batch, KEYS[1], 'RIGHT', 'LEFT')
  if not payload then
    break
  end
  moved, bytes = moved + 1, bytes + #payload
end
if redis.call('EXISTS', batch) == 0 then
  redis.call('RPOP', KEYS[3])
end
wake(KEYS[2], ARGV[1], moved)
return redis.call('LLEN', KEYS[3])
