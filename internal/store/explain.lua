-- explain: find the waiting and failed copies of a task at one moment, and describe the
-- queue. It changes nothing.
--
-- ARGV[6] entry    to look up; "": search by payload
-- ARGV[7] payload
-- ARGV[8] most     how many copies of each kind to return
-- ARGV[9] depth    how many tasks of the list to search
-- ARGV[10] head    start of the failed queue's key names
-- ARGV[11] tail    end of these names
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_added, lib_settle, lib_return, lib_failed.
--
-- Returns {now, paused, workers, idle, ready, length, added, places, line, entries, failures}: how many
-- workers with an unexpired lease serve the queue; how many are idle; how many
-- entries are due; how many tasks are on the list; how many added
-- tasks wait; for each copy on the list, how many tasks are before it; for a waiting added task, {how many are
-- before it or -1, when it was added in ms, card, payload}, otherwise {}; for each entry {entry, due, planned or -1,
-- retries, crashes, before, process or "", its worker or "", its token, time of the waiting occurrence or 0, 1 if
-- it's withheld};
-- for each failed copy {entry, kind, reason, tries, deaths, worker, at, from, card}.
local by, payload, most, depth = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
if broken then
  return broken
end
local failed = failed_queue(ARGV[10], ARGV[11])
local lives = redis.call('ZCOUNT', q.workers, now, '+inf')
local idlers = redis.pcall('ZCARD', q.idle)
local length = redis.pcall('LLEN', q.waiting)
length = type(length) == 'number' and length or 0

-- Returns the entries of a lane in which the payload waits.
local function entries_of(lane)
  local digest, names = digest_of(payload), {}
  local members = redis.pcall('ZRANGEBYLEX', lane.contents, '[' .. digest .. ':', '(' .. digest .. ';', 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    local entry = string.sub(member, 42)
    if not digests.are_of_name(lane, entry, payload, digest) then
      names[#names + 1] = entry
    end
  end
  return names
end

-- Returns the crash count of an entry that isn't a key.
local function crashes_in(entry)
  local waiting = by == '' and payload or redis.call('HGET', q.keyed .. entry, 'payload')
  return tonumber(redis.call('HGET', q.ledger, digest_of(waiting))) or 0
end

local places = {}
if by == '' and length > 0 then
  for _, index in ipairs(redis.call('LPOS', q.waiting, payload, 'RANK', -1, 'COUNT', most, 'MAXLEN', depth)) do
    places[#places + 1] = length - 1 - index
  end
end

-- The added task, if it waits in the stream.
local LOOKED, COUNTED = 1048576, 2000 -- limits on the tasks before it: bytes and number
local line = {}
if by ~= '' then
  local id, card, waiting = added.waits(by)
  if id then
    local before, bytes = 0, 0
    added.each('(' .. id, function(_, pair)
      if before >= math.min(depth, COUNTED) or bytes >= LOOKED then
        before = -1
        return false
      end
      before, bytes = before + 1, bytes + #pair[2]
      return true
    end)
    line = { before, tonumber((string.match(id, '^%d+'))), card, waiting }
  end
end

local entries = {}
for _, entry in ipairs(by == '' and entries_of(q) or #line == 0 and { by } or {}) do
  local fields = redis.pcall('HMGET', q.keyed .. entry, 'due', 'retries', 'crashes', 'process', 'holder', 'turn', 'withheld')
  local waits = redis.pcall('HEXISTS', q.keyed .. entry, 'payload') == 1
  if waits or fields[4] then -- an error has no elements
    local process, holder, token = fields[4] or '', '', 0
    local score = fields[4] and fields[5] and redis.pcall('ZSCORE', q.working .. fields[5], process)
    if type(score) == 'string' then
      holder, token = fields[5], tonumber(score)
    end
    local due = waits and number(fields[1]) or -1
    local crashes = waits and not is_key(entry) and crashes_in(entry) or number(fields[3])
    local planned = tonumber(redis.call('ZSCORE', q.schedule, entry)) or -1
    entries[#entries + 1] = { entry, due, planned, number(fields[2]), crashes,
      redis.call('ZRANK', q.schedule, entry) or -1, process, holder, token, number(fields[6]), fields[7] and 1 or 0 }
  end
end

if by ~= '' then
  local process, holder = added.runs(by)
  if process then
    local score, token = redis.pcall('ZSCORE', q.working .. holder, process), 0
    if type(score) == 'string' then
      token = tonumber(score)
    else
      holder = ''
    end
    entries[#entries + 1] = { by, -1, -1, 0, 0, -1, process, holder, token, 0, 0 }
  end
end

local failures = {}
for _, entry in ipairs(by == '' and entries_of(failed) or {}) do
  local f = redis.pcall('HMGET', failed.keyed .. entry, 'kind', 'reason', 'tries', 'deaths', 'worker', 'at', 'from', 'card')
  if not f.err then
    failures[#failures + 1] = { entry, f[1] or '', f[2] or '', f[3] or '0', f[4] or '0', f[5] or '', f[6] or '0', f[7] or '', f[8] or '' }
  end
end
return {
  now, redis.call('EXISTS', q.paused), lives, type(idlers) == 'number' and idlers or 0,
  redis.call('ZCOUNT', q.schedule, '-inf', now), length, adding and redis.call('XLEN', q.added) or 0, places, line, entries, failures,
}
