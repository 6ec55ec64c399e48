-- lib_fence: end the membership of workers.

-- Ends the membership of workers, so that they change nothing anymore, and joins that were asked for before now are
-- refused. They stay in leaving until their tasks are returned, so that any other worker can go on where this call
-- stops. evicted is 1 if they were evicted.
local function fence(workers, evicted)
  for _, worker in ipairs(workers) do
    redis.call('ZADD', q.leaving, evicted, worker)
  end
  redis.call('ZREM', q.workers, unpack(workers))
  redis.call('ZREM', q.suspects, unpack(workers))
  redis.call('HDEL', q.rounds, unpack(workers))
  redis.pcall('ZREM', q.idle, unpack(workers))
  redis.call('HSET', q.state, 'token', state.token + 1, 'fence', state.token + 1)
  redis.call('HDEL', q.state, 'claimed') -- maybe by one of them
  state.claimed = 0
end
