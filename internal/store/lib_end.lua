-- lib_end: what happens under a name when its attempt is over.

-- Puts what waits behind the task of a name, or its next occurrence, in its place. Returns whether there was one.
local followed -- above 0 if any name may have one
local function follow(name, how)
  followed = followed or redis.call('EXISTS', q.next, q.recurring)
  local recurs = followed > 0 and redis.call('ZSCORE', q.recurring, name)
  if recurs then
    note_passed(name, read_record(redis.call('HGET', q.tasks, name) or '').occurrence, how)
  end
  local behind = followed > 0 and read_next(name)
  if behind then
    redis.call('HDEL', q.next, name)
    redis.call('HSET', q.tasks, name, behind.record)
    plan(name, behind.at)
    return true
  end
  return recurs and plan_occurrence(name)
end

-- The task of a name has ended, somehow. The script calls delete_ended when it has ended all.
local ended_runs, ended_records = {}, {}
local function ended(name, how)
  ended_runs[#ended_runs + 1] = name
  if is_raw(name) then
    redis.call('ZREM', q.copies, name)
    redis.call('HDEL', q.crashes, digest_in(name) or '')
  elseif follow(name, how) then
    return
  end
  ended_records[#ended_records + 1] = name
end

local function delete_ended()
  if #ended_runs > 0 then
    redis.call('HDEL', q.runs, unpack(ended_runs))
  end
  if #ended_records > 0 then
    redis.call('HDEL', q.tasks, unpack(ended_records))
  end
end

-- The task of a name is dropped. why is the word in its result.
local function drop_named(name, why)
  store_result(name, kept_of(redis.call('HGET', q.tasks, name) or ''), why, '', '')
  ended(name, why)
end

-- Moves a raw task from its attempt to the front. Returns 1, or 0 if there's none, and an error if Redis refuses.
local function back_to_front(list)
  local moved = redis.pcall('LMOVE', list, q.queues, 'LEFT', 'RIGHT')
  if type(moved) ~= 'string' then
    return 0, moved
  end
  redis.call('HINCRBY', q.state, 'taken', -1)
  startable = startable + 1
  return 1
end

-- Reports whether an attempt must not be followed by another: its token is negative, or its digest was canceled since.
local function is_canceled(token, digest)
  if token >= 0 and digest and digest ~= '' then
    return (tonumber(redis.pcall('GET', q.canceled .. digest)) or -1) >= token
  end
  return token < 0
end

-- The task of a name waits again: until a time, or at a place if the time is 0. If another one has been put behind
-- it, that one's rules say what stays of the two.
local function comes_back(name, run, at, place)
  run.attempt = ''
  local behind, wanted = read_next(name), at
  if behind then
    redis.call('HDEL', q.next, name)
    wanted = time_of_both(at, behind)
    if not behind.keep then
      if kept_of(behind.record) == 0 then -- as in add
        store_result(name, kept_of(redis.call('HGET', q.tasks, name) or ''), 'replaced', '', '')
      end
      redis.call('HSET', q.tasks, name, behind.record)
    end
    if not behind.counts then
      run = read_run()
    end
  end
  write_run(name, run)
  if wanted == 0 and at == 0 then
    make_ready(name, place)
  else
    plan(name, wanted)
  end
end
