-- lib_append: add tasks to the stream, with consecutive ids. The first id is Redis's time: the
-- milliseconds, and a sequence number of 20 bits made from the microseconds. So the last id
-- doesn't need to be looked up, unless the clock stood still or was set back.
local LARGE = 16384 -- bytes; a larger payload is stored apart, so that a page of the stream stays small
local SEQUENCES = 1048576
local TIMES = 281474976710655 -- ms; a key has 48 bits for them

-- Appends the tasks in list[from] and after it, where cards and payloads alternate. Returns the
-- name of the first task, or Redis's error if nothing was changed.
local function append(added, keyed, salt, list, from)
  local time = redis.call('TIME')
  local ms, seq = time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000 * 1046
  local prefix, count = string.format('%d-', ms), (#list - from + 1) / 2
  local card, field -- computed once for tasks with the same card
  local function push(i)
    local of, payload = list[from + 2 * i], list[from + 2 * i + 1]
    if #payload > LARGE then
      local apart = salt .. cards.with(of, cards.apart, true)
      local pushed = redis.pcall('XADD', added, prefix .. seq + i, apart, '')
      if type(pushed) == 'string' then
        redis.call('HSET', keyed .. cards.entry(ms, seq + i, salt), 'payload', payload, 'card', cards.with(of, cards.apart, false))
      end
      return pushed
    end
    if of ~= card then
      card, field = of, salt .. cards.with(of, cards.apart, false)
    end
    return redis.pcall('XADD', added, prefix .. seq + i, field, payload)
  end
  local pushed = push(0)
  if type(pushed) == 'table' and string.find(pushed.err, 'equal or smaller') then
    local about, last = redis.call('XINFO', 'STREAM', added), nil
    for i, name in ipairs(about) do
      last = name == 'last-generated-id' and about[i + 1] or last
    end
    ms, seq = string.match(last, '^(%d+)%-(%d+)$')
    ms, seq = tonumber(ms), seq + 1
    if ms >= TIMES then
      return { err = 'WRONGTYPE an item in the stream of added tasks is of no time; remove it' }
    end
    if seq + count > SEQUENCES then
      ms, seq = ms + 1, 0
    end
    prefix = string.format('%d-', ms)
    pushed = push(0)
  end
  if type(pushed) == 'table' then
    return pushed
  end
  for i = 1, count - 1 do
    push(i)
  end
  return string.format('a:%d-%d-%s', ms, seq, salt)
end
