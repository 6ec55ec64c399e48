-- lib_return: evict workers and return their tasks.

local returns = later(function(returns)
  -- Returns the fence: joins that name a lower token are too late. Without members, it's the
  -- last token.
  function returns.last_fence()
    local token = last_token() or 0
    if redis.call('EXISTS', q.rounds) == 1 then
      return math.min(token, tonumber(redis.call('HGET', q.rounds, 'fence')) or 0)
    end
    return token
  end

  -- Makes all earlier requests to join too late. If the token or the rounds have the wrong
  -- type, joins fail anyway.
  function returns.end_joins()
    local token, n = last_token(), redis.pcall('HLEN', q.rounds)
    if not token or type(n) ~= 'number' then
      return
    end
    redis.call('SET', q.token, token + 1)
    q.drift = q.drift + 1
    if n > redis.call('HEXISTS', q.rounds, 'fence') + redis.call('HEXISTS', q.rounds, 'lease') then
      redis.call('HSET', q.rounds, 'fence', token + 1)
    else
      redis.call('DEL', q.rounds)
    end
  end

  -- Ends the membership of these workers, so that they can't change anything. They stay in
  -- suspects with their mark (0 evicted, -1 left) until all their tasks are returned, so that
  -- any peer can continue where this call stops.
  function returns.fence(workers, mark)
    local marks = {}
    for i, worker in ipairs(workers) do
      marks[2 * i - 1], marks[2 * i] = mark, worker
      q.earlier = q.earlier or keeps_time(worker) -- then another worker must keep it
    end
    redis.call('ZADD', q.suspects, unpack(marks))
    redis.call('ZREM', q.workers, unpack(workers))
    redis.pcall('ZREM', q.idle, unpack(workers))
    redis.pcall('HDEL', q.rounds, unpack(workers))
    returns.end_joins()
  end

  -- Limits of one call, so that it takes far less than 5 ms.
  local AT_ONCE = 100 -- tasks given back
  local RETURNS = 500 -- workers whose tasks it compares
  local SUSPECTS = 1000 -- workers marked as suspects
  local FENCES = 200 -- workers evicted

  -- Returns the newest tasks of some workers, newest first and at most limit; and the
  -- workers that hold nothing.
  local function newest(workers, limit)
    local heads, none, found = {}, {}, {}
    local size = math.max(math.floor(limit / #workers), 1)
    -- Moves on to a worker's next task. Returns its token, or nil if there is none.
    local function advance(head)
      if head.at > #head.page then
        head.page = redis.pcall('ZREVRANGE', q.working .. head.worker, head.from, head.from + size - 1, 'WITHSCORES')
        head.from, head.at = head.from + size, 1
      end
      head.id, head.token = head.page[head.at], tonumber(head.page[head.at + 1])
      head.at = head.at + 2
      return head.token
    end
    for _, worker in ipairs(workers) do
      local head = { worker = worker, page = {}, at = 1, from = 0 }
      if advance(head) then
        heads[#heads + 1] = head
      elseif not head.page.err then
        none[#none + 1] = worker
      end
    end
    table.sort(heads, function(a, b) return a.token > b.token end)
    for i = limit + 1, #heads do
      heads[i] = nil -- the first limit workers each have a newer task
    end
    size = math.max(size, 10)
    while heads[1] and #found < limit do
      local head = table.remove(heads, 1)
      found[#found + 1] = { worker = head.worker, id = head.id, token = head.token }
      if advance(head) then
        local place = 1
        while heads[place] and heads[place].token > head.token do
          place = place + 1
        end
        table.insert(heads, place, head)
      end
    end
    return found, none
  end

  -- Returns tasks of fenced workers, newest first, so that the oldest ends up
  -- in front. Returns how many went to the front, how many were handled and how many
  -- are left; the last is exact only for a single worker.
  function returns.take_back(workers)
    local held, over = newest(workers, AT_ONCE)
    local returned, handled, left = 0, 0, #workers - #over
    local dead, gone, touched, enough = {}, {}, {}, carried + BYTES
    for _, task in ipairs(held) do
      if carried >= enough then
        break
      end
      local worker = task.worker
      if not gone[worker] then
        gone[worker], touched[#touched + 1] = {}, worker
        dead[worker] = redis.call('ZSCORE', q.suspects, worker) == '0' and 1 or 0
      end
      local moved = give_back(q.working .. worker, task.id, task.token, dead[worker], gone[worker])
      if moved ~= nil then
        returned, handled = returned + (moved and 1 or 0), handled + 1
      end
    end
    for _, worker in ipairs(touched) do
      if #gone[worker] > 0 then
        redis.call('ZREM', q.working .. worker, unpack(gone[worker]))
      end
      local n = redis.call('ZCARD', q.working .. worker)
      left = left - 1 + n
      if n == 0 then
        over[#over + 1] = worker
      end
    end
    if #over > 0 then
      redis.pcall('ZREM', q.holders, unpack(over))
      redis.call('ZREM', q.suspects, unpack(over))
    end
    return returned, handled, left
  end

  -- Returns a page of the workers whose tasks are being returned.
  local function returning()
    return redis.call('ZRANGEBYSCORE', q.suspects, '-inf', 0, 'LIMIT', 0, RETURNS)
  end

  -- Continues returns that have begun. Returns whether other tasks may start, because
  -- no task is left to return or the rest can't be read; and whether to call again immediately.
  function returns.resume()
    local workers = returning()
    if #workers == 0 then
      return true, false
    end
    local returned, handled = returns.take_back(workers)
    wake(q.idle, q.wake, returned)
    local more = handled > 0 and redis.call('ZCOUNT', q.suspects, '-inf', 0) > 0
    return not more, more
  end

  -- Returns the longest lease of the members; nil if it isn't known.
  function returns.longest()
    local longest = number(redis.pcall('HGET', q.rounds, 'lease')) -- 0 for an error reply
    return longest > 0 and longest
  end

  -- Reports whether a deadline is later than any live worker's, given the longest lease: it was set
  -- before Redis's clock was set back. The next heartbeat of a live worker corrects its own.
  function returns.is_ahead(deadline, longest)
    return longest and tonumber(deadline) > now + longest and tonumber(deadline) < NEVER
  end

  -- Returns how many deadlines are ahead, given the longest lease.
  function returns.count_ahead(longest)
    return longest and redis.call('ZCOUNT', q.workers, '(' .. now + longest, '(9007199254740991') or 0
  end

  -- Marks workers whose deadline is ahead as suspects, for as long as a lease takes to expire and to
  -- be judged. Marks that are ahead, too, are set again. Returns how many deadlines are ahead.
  local function suspect_ahead(grace, longest)
    local wait = math.floor(longest * 3 / 2)
    local late = redis.call('ZRANGEBYSCORE', q.suspects, '(' .. now + math.max(grace, wait), '+inf', 'LIMIT', 0, SUSPECTS)
    if #late > 0 then
      redis.call('ZREM', q.suspects, unpack(late))
    end
    local ahead, marks = redis.call('ZRANGEBYSCORE', q.workers, '(' .. now + longest, '(9007199254740991', 'LIMIT', 0, SUSPECTS), {}
    for _, worker in ipairs(ahead) do
      marks[#marks + 1] = now + wait
      marks[#marks + 1] = worker
    end
    if #ahead > 0 then
      redis.call('ZADD', q.suspects, 'NX', unpack(marks))
    end
    return #ahead
  end

  -- Marks workers whose lease has expired as suspects, in pages. They are the first members
  -- by deadline, and earlier suspects are the first of these. If the numbers don't match,
  -- because another program wrote to suspects, at least the first few are marked.
  -- ahead is how many other members are suspects because their deadline is ahead.
  -- Returns how many leases have expired, and whether more workers are left to suspect.
  local function suspect(grace, ahead)
    local lapsed = redis.call('ZCOUNT', q.workers, '-inf', '(' .. now)
    if lapsed == 0 then
      return 0, false
    end
    local noted = math.max(redis.call('ZCOUNT', q.suspects, '(0', '+inf') - ahead, 0)
    local from, most = noted, SUSPECTS
    if noted >= lapsed then
      from, most = 0, 20
    end
    local marks = {}
    for _, worker in ipairs(redis.call('ZRANGE', q.workers, from, math.min(lapsed, from + most) - 1)) do
      marks[#marks + 1] = now + grace
      marks[#marks + 1] = worker
    end
    redis.call('ZADD', q.suspects, 'NX', unpack(marks))
    return lapsed, lapsed > math.max(noted, from + most)
  end

  -- Looks for workers whose lease has expired. If one is found for the first time, it
  -- becomes a suspect. If it has been a suspect for grace ms and has sent no heartbeat
  -- since, it's evicted, provided that the caller may judge. Tasks are returned once all these
  -- workers are fenced, so that they keep their order. Returns the workers evicted,
  -- each with the number of its tasks; the number of tasks returned; whether
  -- there is more to do immediately; and the ms until the next suspect is due (-1 if there
  -- is none).
  function returns.look(grace, judge)
    -- Most members have the caller's lease, which is about twice the grace.
    local longest = (suspecting or returns.count_ahead(2 * grace + 2) > 0) and returns.longest()
    local ahead = longest and suspect_ahead(grace, longest) or 0
    local lapsed, more = suspect(grace, ahead)
    if lapsed + ahead == 0 and not suspecting then
      return {}, 0, 0, -1 -- the usual case
    end
    local failed, dead, back = {}, {}, {}
    local due = redis.call('ZRANGEBYSCORE', q.suspects, '(0', now, 'LIMIT', 0, FENCES)
    for i, deadline in ipairs(#due > 0 and redis.call('ZMSCORE', q.workers, unpack(due)) or {}) do
      if not deadline or tonumber(deadline) >= now and not returns.is_ahead(deadline, longest) then
        back[#back + 1] = due[i]
      elseif judge then
        dead[#dead + 1] = due[i]
        local held = redis.pcall('ZCARD', q.working .. due[i])
        failed[#failed + 1] = due[i]
        failed[#failed + 1] = type(held) == 'number' and held or 0
      end
    end
    if #back > 0 then
      redis.call('ZREM', q.suspects, unpack(back))
    end
    if #dead > 0 then
      returns.fence(dead, 0)
    end
    more = more or #due == FENCES and (judge or #back > 0)
    local returned = 0
    if not (judge and #due == FENCES) then
      local handled, left
      returned, handled, left = returns.take_back(returning())
      more = more or left > 0 and handled > 0
    end
    alert(q, returned)
    local first = redis.call('ZRANGEBYSCORE', q.suspects, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local due_in = #first > 0 and math.max(tonumber(first[2]) - now, 0) or -1
    return failed, returned, more and 1 or 0, due_in
  end
end)
