-- lib_return: take a worker's tasks away from it.

-- From here on the worker changes nothing any more. It stays in suspects with
-- mark (0 failed, -1 left) until all it held is returned, so that any peer can
-- go on where this call stops.
local function fence(worker, mark)
  redis.call('ZREM', q.workers, worker)
  redis.pcall('ZREM', q.idle, worker)
  redis.call('HDEL', q.rounds, worker)
  redis.call('ZADD', q.suspects, mark, worker)
end

-- Give back at most limit tasks of a fenced worker, the newest first: so the
-- oldest ends foremost. Returns how many went to the front, how many were
-- handled and how many are left.
local function take_back(worker, limit)
  local working = q.working .. worker
  local held = redis.call('ZREVRANGE', working, 0, limit - 1, 'WITHSCORES')
  local returned, handled = 0, 0
  for i = 1, #held, 2 do
    local moved = give_back(working, held[i], tonumber(held[i + 1]))
    if moved == nil then
      break
    end
    returned, handled = returned + (moved and 1 or 0), handled + 1
  end
  local left = redis.call('ZCARD', working)
  if left == 0 then
    if canceling then
      for _, digest in ipairs(redis.call('ZRANGE', q.canceled, 0, -1)) do
        acknowledge(digest, worker)
      end
    end
    redis.call('ZREM', q.suspects, worker)
  end
  return returned, handled, left
end

-- Go on with a return that somebody began. Returns whether none is left, and
-- else whether to try again at once.
local function resume_return(limit)
  local worker = redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0, 'LIMIT', 0, 1)[1]
  if not worker then
    return true, false
  end
  local returned, handled, left = take_back(worker, limit)
  wake(q.idle, q.wake, returned)
  local over = left == 0 and #redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0, 'LIMIT', 0, 1) == 0
  return over, not over and (handled > 0 or left == 0)
end

-- Look for workers whose lease has lapsed. One that is seen lapsed for the
-- first time becomes a suspect; one that was suspected grace ms ago and has
-- not been heard of since is failed, if the caller may judge. Bounded by limit
-- tasks a call. Returns the workers failed, the number of tasks put back,
-- whether there is more to do at once, and the ms until the next suspect is
-- due (-1 if there is none).
local function look(grace, judge, limit)
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', q.workers, '-inf', '(' .. now, 'LIMIT', 0, 100)) do
    redis.call('ZADD', q.suspects, 'NX', now + grace, worker)
  end
  local failed, returned = {}, 0
  local due = redis.call('ZRANGEBYSCORE', q.suspects, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 20)
  for i = 1, #due, 2 do
    local worker, mark = due[i], tonumber(due[i + 1])
    if mark > 0 then
      local deadline = tonumber(redis.call('ZSCORE', q.workers, worker) or nil)
      if not deadline or deadline >= now then
        redis.call('ZREM', q.suspects, worker)
      elseif judge then
        fence(worker, 0)
        failed[#failed + 1] = worker
        mark = 0
      end
    end
    if mark <= 0 and limit > 0 then
      local n, handled = take_back(worker, limit)
      returned, limit = returned + n, limit - handled
    end
  end
  wake(q.idle, q.wake, returned)
  local first = redis.call('ZRANGE', q.suspects, 0, 0, 'WITHSCORES')
  local due_in = #first > 0 and math.max(tonumber(first[2]) - now, 0) or -1
  return failed, returned, (limit <= 0 or #due == 40) and 1 or 0, due_in
end
