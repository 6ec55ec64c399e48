-- lib_append: add tasks to the stream, with ids that follow each other. The first id is the
-- time of Redis: a sequence number has 20 bits, of which the microseconds take the greater
-- part. So the last id need not be looked up, unless the clock stood still or was set back.
local LARGE = 16384 -- bytes of a payload that is kept apart, so that a page of the stream stays small
local SEQUENCES = 1048576
local TIMES = 281474976710655 -- ms; a key has 48 bits for them

-- Returns the name of the first, or the error of Redis before anything has changed.
local function append(added, keyed, salt, tasks)
  local time = redis.call('TIME')
  local ms, seq = time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000 * 1046
  local function push(i)
    local card, payload = tasks[i].card, tasks[i].payload
    local apart = #payload > LARGE
    card = cards.with(card, cards.apart, apart)
    local pushed = redis.pcall('XADD', added, string.format('%d-%d', ms, seq + i - 1), salt .. card, apart and '' or payload)
    if apart and type(pushed) == 'string' then
      redis.call('HSET', keyed .. cards.entry(ms, seq + i - 1, salt), 'payload', payload, 'card', cards.with(card, cards.apart, false))
    end
    return pushed
  end
  local pushed = push(1)
  if type(pushed) == 'table' and string.find(pushed.err, 'equal or smaller', 1, true) then
    local about, last = redis.call('XINFO', 'STREAM', added), nil
    for i = 1, #about, 2 do
      last = about[i] == 'last-generated-id' and about[i + 1] or last
    end
    ms, seq = string.match(last, '^(%d+)%-(%d+)$')
    ms, seq = tonumber(ms), seq + 1
    if ms >= TIMES then
      return { err = 'WRONGTYPE an item in the stream of added tasks is of no time; remove it' }
    end
    if seq + #tasks > SEQUENCES then
      ms, seq = ms + 1, 0
    end
    pushed = push(1)
  end
  if type(pushed) == 'table' then
    return pushed
  end
  for i = 2, #tasks do
    push(i)
  end
  return string.format('a:%d-%d-%s', ms, seq, salt)
end
