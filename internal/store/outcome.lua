-- outcome: report how the tasks of some entries ended, or whether a task waits or runs there. It
-- changes nothing. It stops after the first entries whose records add up to a MiB; the caller
-- asks again for the rest.
--
-- KEYS[1] entries  hash        process → entry, or name and card of an added task; its name → process:worker
-- KEYS[2] added    stream      waiting added tasks, in order
-- ARGV[1] keyed    key prefix  of a schedule entry; its name is appended
-- ARGV[2] result   key prefix  of the record of how a task ended; the name of its entry is appended
-- ARGV[3] entry    the first of one or more
-- Uses lib_later, lib_card.
--
-- Returns for each entry the record, or ""; and for how many ms the results of the waiting and
-- of the running task will be kept: 0 if not at all, -1 if there is no such task.
local entries, added, keyed, result = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local at = 3
local PAGE = 1048576 -- bytes

-- Returns these two times for an added task that waits in the stream, or runs and came from there.
local function of_added(entry)
  local id, salt = cards.place(entry)
  if not id then
    return -1, -1
  end
  local waits, runs = -1, -1
  local item = redis.pcall('XRANGE', added, id, id)[1] -- an error has none
  if item then
    local _, _, of, card = cards.item(item[1], item[2])
    waits = of == salt and cards.keeps(card) or -1
  end
  local runner = redis.pcall('HGET', entries, 'a:' .. id .. '-' .. salt)
  if type(runner) == 'string' then
    local value = redis.call('HGET', entries, (string.match(runner, '^[^:]*')))
    local _, _, card = cards.read(value or '')
    runs = card and cards.keeps(card) or 0
  end
  return waits, runs
end

local told, bytes = {}, 0
for i = at, #ARGV do
  if bytes >= PAGE then
    break
  end
  local entry = ARGV[i]
  local record = redis.pcall('GET', result .. entry)
  if type(record) == 'table' and string.sub(record.err, 1, 9) ~= 'WRONGTYPE' then
    return record -- an error: for example, the user may not read it
  end
  record = type(record) == 'string' and record or ''
  bytes = bytes + #record
  local waits, runs = of_added(entry)
  local process, due, card, held = unpack(redis.pcall('HMGET', keyed .. entry, 'process', 'due', 'card', 'held'))
  if due then
    waits = cards.keeps(card or '')
  end
  if process then
    runs = cards.keeps(held or '')
  end
  told[#told + 1], told[#told + 2], told[#told + 3] = record, waits, runs
end
return told
