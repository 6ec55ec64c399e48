-- cancel: remove what waits of a payload, page by page: its copies on the list, then those outside of it, and then the
-- unique task. A copy that runs is dropped when it would wait again; mark marks it.
--
-- ARGV[3] payload  of the tasks
-- ARGV[4] after    "" on the first call; then what the last one answered
-- Uses lib_queue, lib_record, lib_wait.
--
-- Returns {removed, after, token, workers}: how many this call removed; where the next one goes on, nil after the last;
-- and then the token up to which running copies are canceled, and all who may run one.
local payload, after = ARGV[3], ARGV[4]
local digest = redis.sha1hex(payload)
local KNOWN = 60000 -- for how many ms a cancel is known; longer than a message can be late

-- Returns how many copies of the payload make a page.
local function page(most, bytes)
  return math.max(math.min(most, math.floor(bytes / math.max(#payload, 1))), 1)
end

read_state()
check_types(q, 'queues', 'workers', 'leaving')
check_types(q, unpack(NAMED))
local token = state.token

first_write()
redis.call('SET', q.canceled .. digest, token, 'PX', KNOWN)
redis.call('HDEL', q.crashes, digest)

local removed = 0
if after == '' then
  local most = page(10000, 4 * MIB)
  removed = redis.call('LREM', q.queues, -most, payload) -- the front is at the tail
  redis.call('HINCRBY', q.state, 'taken', removed)
  after = removed < most and 'r:' .. digest .. ':' or ''
end

local last = false
if after ~= '' then
  local most = page(100, MIB)
  local names = redis.call('ZRANGE', q.copies, '(' .. after, '(r:' .. digest .. ';', 'BYLEX', 'LIMIT', 0, most)
  local found = {}
  for _, name in ipairs(names) do
    found[#found + 1] = waiting(name) and name or nil
  end
  withdraw(q, found)
  removed = removed + #found
  after, last = names[#names], #names < most
end
if not last then
  return { removed, after, token, {} }
end
local unique = 'u:' .. digest
local record = waiting(unique)
if record then
  store_result(unique, kept_of(record), 'canceled', '', '')
  withdraw(q, { unique })
  removed = removed + 1
end

local message = payload
if #payload > 1024 or string.find(payload, '^sha1:%x+:%d+$') then
  message = 'sha1:' .. digest .. ':' .. #payload
end
redis.pcall('PUBLISH', q.channel .. 'cancel', message)
local workers = redis.call('ZRANGE', q.workers, 0, -1)
for _, worker in ipairs(redis.call('ZRANGE', q.leaving, 0, -1)) do
  workers[#workers + 1] = worker
end
return { removed, false, token, workers }
