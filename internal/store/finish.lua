-- finish: end attempts.
--
-- ARGV[3] worker      id
-- ARGV[4] max failed  how many failed tasks to keep, 0: all; in a failed queue, how many aside
-- ARGV[5] plain       how many plain ends; each: attempt, token
-- then the other ends; each: attempt, token, identity, verb, delay, text.
--          identity: the name, or "d:" and the digest, if known. done: delay is for how many ms the text, a result, is
--          kept. retry, snooze: after the delay; text: a retry's error. stop. fail: text is "kind:error". drop: canceled, …
-- Returns {odd, dropped}: for each end that wasn't ok, its number and gone, canceled, refused, or postponed to the next
-- call; and how many failed tasks were dropped.
-- Fails with EVICTED if the worker isn't a member.
local FIRST, worker, most, plain = 6, ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local others = (#ARGV - FIRST + 1 - 2 * plain) / 6
local from, to = ARGV[1] .. ':', ':' .. ARGV[2] -- all keys of lib_keys are more than plain ends need
local process, working, crashes = from .. 'process' .. to .. ':', from .. 'working' .. to .. ':' .. worker, from .. 'crashes' .. to

if not redis.call('ZSCORE', from .. 'workers' .. to, worker) then
  return redis.error_reply('EVICTED the worker is not a member of the queue')
end

-- Reads the tokens of all ends; a negative one must stop.
local args, ids, identities, rest = ARGV, {}, {}, FIRST + 2 * plain
for i = 1, plain do
  ids[i] = args[FIRST + 2 * i - 2]
end
for i = 1, others do
  ids[plain + i], identities[i] = args[rest + 6 * i - 6], args[rest + 6 * i - 4]
end
local held = #ids > 0 and redis.call('ZMSCORE', working, unpack(ids)) or {}

local odd, dropped = {}, 0
local function odd_end(i, word)
  odd[#odd + 1], odd[#odd + 2] = i, word
end

-- Events, until one reaches nobody. What is large has only its size.
local LARGE, publishing = 65536, true
local function announce(payload, result)
  if not publishing then
    return
  end
  local event = { workerId = worker }
  for field, value in pairs({ task = payload, result = result ~= '' and result or nil }) do
    if #value > LARGE then
      event[field .. 'Size'] = #value
    else
      event[field] = value
    end
  end
  local reached = redis.pcall('PUBLISH', ARGV[1] .. '_' .. ARGV[2] .. '_done', cjson.encode(event))
  publishing = type(reached) == 'number' and reached > 0
end

-- Plain ends change only the attempt and the count of crashes.
local count = redis.pcall('HLEN', crashes)
local counting = type(count) == 'number' and count > 0 -- then each payload is looked up
local lists, over, n = {}, {}, 0
for i = 1, plain do
  local id, token = ids[i], args[FIRST + 2 * i - 1]
  if held[i] ~= token and held[i] ~= '-' .. token then
    odd_end(i, 'gone')
  else
    local list = process .. id
    n = n + 1
    lists[n], over[n] = list, id
    if publishing or counting then
      local payload = redis.pcall('LINDEX', list, 0)
      if type(payload) == 'string' then
        announce(payload, '')
        if counting then
          redis.call('HDEL', crashes, redis.sha1hex(payload)) -- no handler gets one that is too large for a digest
        end
      end
    end
  end
end

local function delete_lists()
  if #lists > 0 then
    redis.call('DEL', unpack(lists))
    redis.call('ZREM', working, unpack(over))
  end
end
if others == 0 then
  delete_lists()
  return { odd, 0 }
end

-- Uses lib_queue, lib_record, lib_merge, lib_recur, lib_end.

-- What can be changed is known before other ends write.
local sound = pcall(read_state) and pcall(check_types, q, unpack(NAMED))
local some_wait, moved = sound and size.next > 0, 0 -- behind running tasks; how many bytes of it this call has moved
local runs = sound and redis.call('HMGET', q.runs, unpack(identities))

-- The failed queue. In a failed queue, tasks that fail are set aside.
local failed = in_failed and q or keys_of(ARGV[1] .. ':failed')
local can_fail -- whether its keys have the right types, and it can count; nil: not known yet

first_write()
-- The user may lack DEL or HDEL, which come last. Then the call fails before it ends anything, or a repeat would do it again.
redis.call('DEL', KEYS[2])
if sound then
  redis.call('HDEL', q.runs, '')
end

-- Adds a task to the failed queue: a raw one under its name, another one under its name and a number.
local function fail(id, name, text, run, kind, reason)
  if in_failed then
    redis.call('ZADD', q.aside, next_place(), name)
    run.attempt, run.error = '', reason
    write_run(name, run)
    return
  end
  local record, back = read_record(text), ''
  local place = string.format('%.0f', redis.call('HINCRBY', failed.state, 'place', 1)) -- all numbers there are its own
  local new = 'r:' .. (digest_in(name) or '') .. ':' .. place
  if not is_raw(name) then
    back = record.occurrence > 0 and name .. '@' .. record.occurrence or name
    new = name .. '#' .. place
  end
  local numbers = table.concat({ kind, now, worker, id, run.retries, run.crashes, #back, #reason }, ':')
  record.occurrence, record.metadata = 0, numbers .. ':' .. back .. reason .. record.metadata
  redis.call('HSET', failed.tasks, new, write_record(record))
  redis.call('ZADD', failed.ready, place, new)
  if is_raw(new) then
    redis.call('ZADD', failed.copies, 0, new)
  end
end

-- Ends one attempt of a named task.
local function end_named(id, token, name, verb, delay, text)
  if verb == 'drop' then
    drop_named(name, text)
  elseif verb == 'done' then
    if publishing then
      announce(read_record(redis.call('HGET', q.tasks, name) or '').payload, text)
    end
    store_result(name, delay, 'finished', '', text)
    ended(name, 'finished')
  elseif verb == 'fail' then
    local run, record = read_run(redis.call('HGET', q.runs, name)), redis.call('HGET', q.tasks, name) or ''
    local kind, reason = string.match(text, '^(%a+):(.*)$')
    if is_raw(name) then
      run.crashes = tonumber(redis.call('HGET', q.crashes, digest_in(name) or '')) or 0
      redis.call('HDEL', q.crashes, digest_in(name) or '')
    end
    fail(id, name, record, run, kind or 'failed', reason or text)
    if not in_failed then
      store_result(name, kept_of(record), kind == 'expired' and kind or 'failed', reason or text, '')
      ended(name, kind == 'crashed' and kind or 'failed')
    end
  else
    local run = read_run(redis.call('HGET', q.runs, name))
    if verb == 'retry' then
      run.retries, run.error = run.retries + 1, text
    end
    comes_back(name, run, verb == 'stop' and 0 or now + delay, token - FRONT)
  end
end

-- Ends one attempt of a raw task other than plainly. If it will wait outside the list, it gets a name first. Returns
-- false if a key has the wrong type.
local function end_raw(id, token, digest, verb, delay, text)
  local list = q.process .. id
  if verb == 'stop' then
    local _, refused = back_to_front(list)
    return not refused
  end
  local payload = redis.pcall('LINDEX', list, 0)
  if type(payload) ~= 'string' then
    return not payload -- then Redis has lost it
  end
  if verb == 'done' or verb == 'drop' then
    redis.call('HDEL', q.crashes, digest)
    if verb == 'done' then
      announce(payload, text)
    end
    return true
  end
  local name = 'r:' .. digest .. ':' .. next_place()
  redis.call('HSET', q.tasks, name, raw_record(payload))
  redis.call('ZADD', q.copies, 0, name)
  end_named(id, token, name, verb, delay, text)
  return true
end

-- From the last to the first, so that raw tasks that are stopped in the order of their starts come back in that order.
local failing, seen = false, {} -- seen: a worker may name an attempt twice
for i = others, 1, -1 do
  local number, at = plain + i, rest + 6 * i - 6
  local id, token, identity, verb = ids[number], args[at + 1], identities[i], args[at + 3]
  local delay, text, score = tonumber(args[at + 4]) or 0, args[at + 5], held[number]
  local named = string.sub(id, -1) == 'n' -- the id says what it is, not the identity
  local valid = score and (score == token or score == '-' .. token) and not seen[id]
  -- If Redis has lost a start, a late copy of that may have started another task with this id.
  valid = valid and (not named or not runs or string.find(runs[i] or '', id, 1, true) == 1)
  local final = verb == 'done' or verb == 'drop'
  local digest = named and not final and digest_in(identity) or not named and string.sub(identity, 3)
  if digest == '' then -- the worker hasn't read it
    local payload = redis.pcall('LINDEX', q.process .. id, 0)
    digest = type(payload) == 'string' and digest_of(payload) or ''
  end
  local canceled = valid and not final and is_canceled(tonumber(score), digest)
  if canceled then
    verb, text = 'drop', 'canceled'
  end
  if valid and verb == 'fail' and can_fail == nil then
    can_fail = in_failed or pcall(check_types, failed, 'state', unpack(NAMED)) and pcall(redis.call, 'HINCRBY', failed.state, 'place', 0)
  end
  local behind = valid and named and some_wait and redis.call('HSTRLEN', q.next, identity) or 0
  if not valid then
    odd_end(number, 'gone')
  elseif not sound or verb == 'fail' and not can_fail then
    odd_end(number, 'refused')
  elseif behind > 0 and moved > 0 and moved + behind > MIB then
    odd_end(number, 'postponed')
  elseif not named and not end_raw(id, token, digest, verb, delay, text) then
    odd_end(number, 'refused')
  else
    moved = moved + behind
    if named then
      end_named(id, token, identity, verb, delay, text)
    end
    if canceled then
      odd_end(number, 'canceled')
    end
    n = n + 1
    lists[n], over[n], seen[id] = q.process .. id, id, true -- they go at the end of the call
    failing = failing or verb == 'fail'
  end
end

delete_ended()
delete_lists()

-- Keeps the failed queue within its limit, unless it has a member: the oldest go. A lease that expired within the last
-- minute counts, since Redis or the member may have stalled.
if failing and most > 0 and (in_failed or redis.pcall('ZCOUNT', failed.workers, now - 60000, '+inf') == 0) then
  local set = in_failed and failed.aside or failed.ready
  dropped = math.max(0, math.min(redis.call('ZCARD', set) - most, 128)) -- no more fail in a round
  if dropped > 0 then
    local names = redis.call('ZRANGE', set, 0, dropped - 1)
    redis.call('ZREM', set, unpack(names))
    redis.call('ZREM', failed.copies, unpack(names))
    redis.call('HDEL', failed.tasks, unpack(names))
    redis.call('HDEL', failed.runs, unpack(names))
    for i, name in ipairs(names) do
      names[i] = digest_in(name) or ''
    end
    redis.call('HDEL', failed.crashes, unpack(names))
  end
end

tell()
if failing and not in_failed then
  wake(failed.idle, failed.channel, 1)
end
return { odd, dropped }
