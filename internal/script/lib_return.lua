-- lib_return: take a worker's tasks away from it.

-- Joins that name a lower token come too late. Where nobody is any more, that is
-- the last token.
local function last_fence()
  local token = last_token() or 0
  if redis.call('EXISTS', q.rounds) == 1 then
    return math.min(token, tonumber(redis.call('HGET', q.rounds, 'fence')) or 0)
  end
  return token
end

-- From here on all joins that were asked for before come too late. Where the token
-- or the rounds are of another type, there are none.
local function end_joins()
  local token, n = last_token(), redis.pcall('HLEN', q.rounds)
  if not token or type(n) ~= 'number' then
    return
  end
  redis.call('SET', q.token, token + 1)
  if n > redis.call('HEXISTS', q.rounds, 'fence') then
    redis.call('HSET', q.rounds, 'fence', token + 1)
  else
    redis.call('DEL', q.rounds)
  end
end

-- From here on the worker changes nothing any more. It stays in suspects with
-- mark (0 failed, -1 left) until all it held is returned, so that any peer can
-- go on where this call stops.
local function fence(worker, mark)
  redis.call('ZADD', q.suspects, mark, worker)
  q.earlier = q.earlier or keeps_time(worker) -- then somebody else is to
  redis.call('ZREM', q.workers, worker)
  redis.pcall('ZREM', q.idle, worker)
  redis.pcall('HDEL', q.rounds, worker)
  end_joins()
end

-- Give back at most limit tasks of fenced workers, the newest first: so the
-- oldest ends foremost. Returns how many went to the front, how many were
-- handled and how many are left.
local AT_ONCE = 100 -- tasks that one call gives back: far less than 5 ms

local function take_back(workers, limit)
  local held, returned, handled, left = {}, 0, 0, 0
  for _, worker in ipairs(workers) do
    local died = redis.call('ZSCORE', q.suspects, worker) == '0' and 1 or 0
    local pairs_ = redis.pcall('ZREVRANGE', q.working .. worker, 0, limit - 1, 'WITHSCORES')
    for i = 1, #pairs_, 2 do
      held[#held + 1] = { worker = worker, id = pairs_[i], token = tonumber(pairs_[i + 1]), died = died }
    end
  end
  table.sort(held, function(a, b) return a.token > b.token end)
  local over = {}
  for i = 1, math.min(#held, limit) do
    local worker = held[i].worker
    over[worker] = over[worker] or {}
    local moved = give_back(q.working .. worker, held[i].id, held[i].token, held[i].died, over[worker])
    if moved ~= nil then
      returned, handled = returned + (moved and 1 or 0), handled + 1
    end
  end
  for _, worker in ipairs(workers) do
    if over[worker] and #over[worker] > 0 then
      redis.call('ZREM', q.working .. worker, unpack(over[worker]))
    end
    local n = redis.pcall('ZCARD', q.working .. worker)
    if n == 0 then
      if canceling then
        for _, digest in ipairs(redis.call('ZRANGE', q.canceled, 0, -1)) do
          acknowledge(digest, worker)
        end
      end
      redis.call('ZREM', q.suspects, worker)
    else
      left = left + (type(n) == 'number' and n or 1) -- of another type: it stays
    end
  end
  return returned, handled, left
end

-- Whose return is under way; a few of them.
local function returning()
  return redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0, 'LIMIT', 0, 20)
end

-- Go on with the returns that somebody began. Returns whether others may start,
-- because none is left, or because what is left cannot be read; and whether to
-- try again at once.
local function resume_return(limit)
  local workers = returning()
  if #workers == 0 then
    return true, false
  end
  local returned, handled = take_back(workers, limit)
  wake(q.idle, q.wake, returned)
  local more = handled > 0 and #returning() > 0
  return not more, more
end

-- Look for workers whose lease has lapsed. One that is seen lapsed for the
-- first time becomes a suspect; one that was suspected grace ms ago and has
-- not been heard of since is failed, if the caller may judge. Bounded by limit
-- tasks a call. Returns the workers failed, the number of tasks put back,
-- whether there is more to do at once, and the ms until the next suspect is
-- due (-1 if there is none).
local function look(grace, judge, limit)
  local lapsed = redis.call('ZRANGEBYSCORE', q.workers, '-inf', '(' .. now, 'LIMIT', 0, 100)
  if #lapsed == 0 and not suspecting then
    return {}, 0, 0, -1 -- as nearly always
  end
  for _, worker in ipairs(lapsed) do
    redis.call('ZADD', q.suspects, 'NX', now + grace, worker)
  end
  local failed = {}
  local due = redis.call('ZRANGEBYSCORE', q.suspects, '(0', now, 'LIMIT', 0, 20)
  for _, worker in ipairs(due) do
    local deadline = tonumber(redis.call('ZSCORE', q.workers, worker))
    if not deadline or deadline >= now then
      redis.call('ZREM', q.suspects, worker)
    elseif judge then
      fence(worker, 0)
      failed[#failed + 1] = worker
    end
  end
  local returned, handled, left = take_back(returning(), limit)
  alert(q, returned)
  local first = redis.call('ZRANGEBYSCORE', q.suspects, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local due_in = #first > 0 and math.max(tonumber(first[2]) - now, 0) or -1
  return failed, returned, (left > 0 and handled > 0 or judge and #due == 20) and 1 or 0, due_in
end
