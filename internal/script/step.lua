-- step: one round of a worker with a queue. Settle processes, then start some:
-- what is due in the second lane goes here, before the raw list.
--
-- ARGV[5]  worker    id
-- ARGV[6]  round     rises by one; the same again tells of the last, an older one is refused
-- ARGV[7]  lease     ms until it lapses; 0 never
-- ARGV[8]  seen      token of the last cancel that the worker has been told of
-- ARGV[9]  idle      1: when it comes back short, the worker waits to be woken
-- ARGV[10] paused    key, present while nothing is to be started
-- ARGV[11] done      channel told of each finished task
-- ARGV[12] outcomes  how many; each: process, token, verb, "=" and the result or ""
--                    verb: finish, drop (canceled, no event) or stop (to the front)
-- ARGV[13] acks      how many; each: digest, token of a cancel of which nothing is left
-- ARGV[14] heard     how many; each: digest of which a cancel message came
-- ARGV[15] the outcomes, the acks, the heard, then the ids of the processes to start
-- Uses lib_queue, lib_wake, lib_settle, lib_return.
--
-- Returns {outcomes, started, cancels, seen, idle rank, again, trouble, recorded}: per outcome ok,
-- canceled (it was to stop, and a cancel had come), gone (it was settled before)
-- or refused (the queue's key is of another type); per started task
-- payload and token; per new cancel digest and token; the last cancel told of;
-- the place among the idle workers or -1; 1 when the next round should follow at once; why nothing
-- could be started; per digest heard the token of its cancel.
-- Fails with EVICTED when the worker is no member.
local worker, round, lease = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local seen, idle, paused, done = tonumber(ARGV[8]), ARGV[9] == '1', ARGV[10], ARGV[11]
local outcomes, acks, heard = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
local working = q.working .. worker
local at = 15

-- All checks first: Redis does not roll back.
if not redis.call('ZSCORE', q.workers, worker) then
  return redis.error_reply('EVICTED the worker is no member of the queue')
end
local last = tonumber(redis.call('HGET', q.rounds, worker) or 0)
if round < last then
  return redis.error_reply('STALE a later round has been answered')
end
local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
if outcomes == 0 then -- else the first outcome tells
  redis.call('ZCARD', working)
end

redis.pcall('ZREM', q.idle, worker) -- as first_write
if suspecting then
  redis.call('ZREM', q.suspects, worker)
end
redis.call('ZADD', q.workers, deadline_after(lease), worker)
redis.call('HSET', q.rounds, worker, round)

local settled, trouble = {}, ''
for i = 1, outcomes do
  local id, started, verb, result = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  at = at + 4
  if tonumber(redis.call('ZSCORE', working, id) or nil) ~= started then
    settled[i] = 'gone'
  elseif verb == 'stop' then
    local moved = give_back(working, id, started)
    if moved == nil then
      settled[i], trouble = 'refused', 'WRONGTYPE the key of the queue is not a list'
    else
      settled[i] = moved and 'ok' or 'canceled'
    end
  else
    local payload = remove(working, id, started, verb == 'finish' and 'finished' or 'stopped')
    if not payload then
      settled[i], trouble = 'refused', 'WRONGTYPE the key of the process is not a list'
    else
      if verb == 'finish' then
        local message = { workerId = worker, task = payload }
        if result ~= '' then
          message.result = string.sub(result, 2)
        end
        redis.pcall('PUBLISH', done, cjson.encode(message))
      end
      settled[i] = 'ok'
    end
  end
end

for _ = 1, acks do
  local digest, canceled = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  local known = redis.pcall('HGET', q.cancel .. digest, 'token')
  if type(known) == 'string' and tonumber(known) == canceled then
    acknowledge(digest, worker)
  end
end

-- Who heard of a cancel is told its token; 0 when it is not on record, because it
-- comes from somebody who keeps none.
local recorded = {}
for i = 1, heard do
  local known = redis.pcall('HGET', q.cancel .. ARGV[at], 'token')
  recorded[i] = type(known) == 'string' and tonumber(known) or 0
  at = at + 1
end

-- Returned tasks start before waiting ones, so a return under way goes first.
local started, empty = {}, false
local wanted = #ARGV - at + 1
local open, again = true, false
if suspecting then
  open, again = resume_return(200)
end
open = open and redis.call('EXISTS', paused) == 0
if round == last then
  -- A copy of the last round: it may come late, when nobody waits for its
  -- answer any more, so it tells what was started and starts nothing.
  for i = at, #ARGV do
    local before = redis.call('ZSCORE', working, ARGV[i])
    if before then
      started[#started + 1] = redis.call('LINDEX', q.process .. ARGV[i], 0)
      started[#started + 1] = tonumber(before)
    end
  end
elseif open and wanted > 0 then
  local scores = {}
  for i = at, #ARGV do
    local id = ARGV[i]
    local payload = redis.pcall('RPOPLPUSH', q.waiting, q.process .. id)
    if type(payload) == 'table' then
      trouble = payload.err or 'the queue cannot be read'
      break
    end
    if not payload then
      empty = true
      break
    end
    token = token + 1
    scores[#scores + 1] = token
    scores[#scores + 1] = id
    started[#started + 1] = payload
    started[#started + 1] = token
    lock_taken(payload, id)
  end
  if #scores > 0 then
    redis.call('ZADD', working, unpack(scores))
    redis.call('SET', q.token, token)
  end
end
keep_offset()

-- Come back short: wait to be woken. Otherwise there may be more: let another
-- one have it, which does the same.
local rank = -1
local more = not empty and open and redis.pcall('LLEN', q.waiting)
more = type(more) == 'number' and more > 0
again = again or more and round == last
if idle and #started < wanted * 2 and not again then
  redis.pcall('ZADD', q.idle, now, worker)
  local place = redis.pcall('ZRANK', q.idle, worker)
  rank = type(place) == 'number' and place or -1
end
if more then
  wake(q.idle, q.wake, 1)
end

local cancels = {}
if seen > token then
  seen = 0 -- Redis has lost writes
end
if canceling then
  local new = redis.call('ZRANGEBYSCORE', q.canceled, '(' .. seen, '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
  for i = 1, #new, 2 do
    if redis.pcall('HEXISTS', q.cancel .. new[i], 'w:' .. worker) == 1 then
      cancels[#cancels + 1] = new[i]
      cancels[#cancels + 1] = tonumber(new[i + 1])
    end
  end
  if #new == 200 then
    again = true
  end
  if #new > 0 then
    seen = tonumber(new[#new])
  end
end
return { settled, started, cancels, seen, rank, again and 1 or 0, trouble, recorded }
