-- lib_about: what the keys say about a queue and about a name.

-- Returns the worker in the id of an attempt.
local function worker_of(id)
  return string.match(id, '^(.+)%.%d+%.%d+%.%d+n?$')
end

-- Returns the token of an attempt; false if its worker doesn't hold it.
local function token_of(id)
  local worker = worker_of(id)
  local token = worker and redis.pcall('ZSCORE', q.working .. worker, id)
  return type(token) == 'string' and tonumber(token)
end

-- Returns the name in the list of an attempt; false if there is none.
local function name_in(id)
  local name = string.sub(id, -1) == 'n' and worker_of(id) and redis.pcall('LINDEX', q.process .. id, 0)
  return type(name) == 'string' and name
end

-- Returns what is in front of a payload; "" of what is no record.
local function head_of(text)
  return text and string.sub(text, 1, #text - #read_record(text).payload)
end

-- Returns {name, record, run, behind, ready, place, schedule, ms, risky, aside, copy, recurring, token, has list}: the
-- record without the payload; what waits behind it, too; the ranks in ready, schedule and risky, with the place and the
-- time; those in aside and copies; until when its schedule is asserted; the token of the attempt that runs; and 1 if
-- that has its list. What there isn't is false.
local function about_name(name)
  local text, behind = redis.call('HGET', q.tasks, name), redis.call('HGET', q.next, name)
  local run = redis.call('HGET', q.runs, name)
  local rules, next_text = string.match(behind or '', '^(%d+:%a+:[01]:[01]:)(.*)$')
  local id = read_run(run).attempt
  return {
    name, head_of(text), run, rules and rules .. head_of(next_text) or head_of(behind),
    redis.call('ZRANK', q.ready, name), redis.call('ZSCORE', q.ready, name), redis.call('ZRANK', q.schedule, name),
    redis.call('ZSCORE', q.schedule, name), redis.call('ZRANK', q.risky, name), redis.call('ZRANK', q.aside, name),
    redis.call('ZRANK', q.copies, name), redis.call('ZSCORE', q.recurring, name), token_of(id),
    name_in(id) == name and 1 or 0,
  }, #(text or '') + #(behind or '')
end

-- Returns {now, token, fence, place, lease, paused, list, ready, returned, risky, due, last, members, lives, leaving,
-- idle}: how many are ready, and how many of these were returned; the last place in use; how many members there are,
-- and how many have a lease that may be valid. The token is -1 if the state can't be read.
local function about_queue()
  local sound = pcall(read_state)
  local longest = sound and state.lease > 0 and string.format('%.0f', now + state.lease) or '+inf'
  local last = 0
  for _, kind in ipairs({ 'ready', 'risky', 'aside' }) do
    last = math.max(last, tonumber(redis.call('ZRANGE', q[kind], -1, -1, 'WITHSCORES')[2]) or 0)
  end
  return {
    now, sound and state.token or -1, state.fence or 0, state.place or 0, state.lease or 0, state.paused or '',
    redis.call('LLEN', q.queues), redis.call('ZCARD', q.ready), redis.call('ZCOUNT', q.ready, '-inf', '(0'),
    redis.call('ZCARD', q.risky), redis.call('ZCOUNT', q.schedule, '-inf', now), last, redis.call('ZCARD', q.workers),
    redis.call('ZCOUNT', q.workers, now, longest) + redis.call('ZCOUNT', q.workers, NEVER, NEVER),
    redis.call('ZCARD', q.leaving), redis.call('ZCARD', q.idle),
  }
end
