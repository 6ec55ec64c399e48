-- explain: find the waiting, running and failed copies of a task at one moment, and say what stands before them. It
-- changes nothing. What runs of the list isn't found here.
--
-- ARGV[6]  name     to look for; "": the payload
-- ARGV[7]  payload
-- ARGV[8]  most     how many copies of each kind
-- ARGV[9]  depth    how many tasks of the list to search, and of the failed queue
-- ARGV[10] failed   start of the failed queue's key names, "worqr:failed"
-- ARGV[11] tail     end of these names, "{q}"
-- Uses lib_queue, lib_lease, lib_record, lib_about.
--
-- Returns {queue, before, names, failed}: the queue and names as in lib_about; for each copy on the list, how many are
-- before it; and {name, record without the payload, 1 if it's aside} for each failed copy, newest first.
local by, payload, most, depth = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local digest = by == '' and digest_of(payload)
local bytes = 0

local function failed(kind)
  return ARGV[10] .. ':' .. kind .. ':' .. ARGV[11]
end

-- Returns the names of copies outside the list.
local function copies_in(key)
  return redis.call('ZRANGE', key, '[r:' .. digest .. ':', '(r:' .. digest .. ';', 'BYLEX', 'LIMIT', 0, most)
end

local names, before, about = { by }, {}, {}
if digest then
  names = copies_in(q.copies)
  names[#names + 1] = 'u:' .. digest
  local length = redis.call('LLEN', q.queues)
  local places = redis.call('LPOS', q.queues, payload, 'RANK', -1, 'COUNT', most, 'MAXLEN', depth)
  for i, place in ipairs(places) do
    before[i] = length - 1 - place
  end
end
for _, name in ipairs(names) do
  if bytes < MIB and redis.call('HEXISTS', q.tasks, name) == 1 then
    local says, size = about_name(name)
    about[#about + 1], bytes = says, bytes + size
  end
end

local failures = {}
local function add_failed(name, aside)
  local text = bytes < 2 * MIB and #failures < most and redis.call('HGET', failed('tasks'), name)
  if text then
    failures[#failures + 1], bytes = { name, head_of(text), aside }, bytes + #text
  end
end
if digest then
  for _, name in ipairs(copies_in(failed('copies'))) do
    add_failed(name, redis.call('ZSCORE', failed('aside'), name) and 1 or 0)
  end
end
local origin = digest and 'u:' .. digest or by
for i, kind in ipairs({ 'ready', 'aside' }) do
  for _, name in ipairs(redis.call('ZREVRANGE', failed(kind), 0, math.min(depth, 1000) - 1)) do
    local back = string.match(name, '^(.*)#%d+$') or ''
    if back == origin or string.gsub(back, '@%d+$', '') == origin then
      add_failed(name, i - 1)
    end
  end
end

return { about_queue(), before, about, failures }
