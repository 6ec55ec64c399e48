-- check: say what the keys hold, for internal/invariants to judge: all about some names, attempts, workers or
-- schedules, at one moment, page by page. It changes nothing.
--
-- ARGV[3] kind    of key, whose members the page has; of tasks, or next, or a set of names; attempts; workers
-- ARGV[4] cursor  "0" on the first call; then what the last one answered; "": what follows
-- then names, attempts or workers, if only these are wanted.
-- Uses lib_queue, lib_lease, lib_record, lib_about.
--
-- Returns {cursor, queue, page}: "0" after the last page; the queue, as in lib_about; and for each
--   name      what lib_about says; those that have a record are in the pages of tasks, not in those of other kinds
--   attempt   {id, has list, token, name, runs}: the name in its list, and the attempt that runs this name
--   worker    {id, deadline, round, leaving, suspect, idle, highest}: the highest token that it holds, -1: none
--   schedule  {name, till, times, passed, prints}
-- Fails with WRONGTYPE if a key of the queue has the wrong type.
local kind, cursor = ARGV[3], ARGV[4]
local MOST = 50

local function about_attempt(id)
  local name = name_in(id)
  local runs = name and read_run(redis.call('HGET', q.runs, name)).attempt
  return { id, redis.call('EXISTS', q.process .. id), token_of(id), name, runs }, 0
end

local function about_worker(worker)
  local first = redis.pcall('ZRANGE', q.working .. worker, 0, 0, 'WITHSCORES')
  local last = redis.pcall('ZRANGE', q.working .. worker, -1, -1, 'WITHSCORES')
  return {
    worker, redis.call('ZSCORE', q.workers, worker), redis.call('HGET', q.rounds, worker),
    redis.call('ZSCORE', q.leaving, worker), redis.call('ZSCORE', q.suspects, worker),
    redis.call('ZSCORE', q.idle, worker), first[2] and math.max(-tonumber(first[2]), tonumber(last[2])) or -1,
  }, 0
end

local function about_schedule(field)
  local name = string.match(field, '^%l%l+:(.*)$') or field
  local text = redis.call('HGET', q.recurrence, name)
  return {
    name, redis.call('ZSCORE', q.recurring, name), string.match(text or '', '^([%d ]*)|') or false,
    redis.call('HGET', q.recurrence, 'passed:' .. name), redis.call('HGET', q.recurrence, 'prints:' .. name),
  }, #(text or '')
end

local ABOUT = {
  attempts = about_attempt, workers = about_worker, suspects = about_worker, leaving = about_worker,
  idle = about_worker, rounds = about_worker, recurring = about_schedule, recurrence = about_schedule,
}
local HASHES = { tasks = true, next = true, runs = true, rounds = true, recurrence = true }
local about, page, bytes = ABOUT[kind] or about_name, {}, 0
local function add(member)
  local has_own_page = not ABOUT[kind] and kind ~= 'tasks' and redis.call('HEXISTS', q.tasks, member) == 1
  if not has_own_page then
    local says, size = about(member)
    page[#page + 1], bytes = says, bytes + size
  end
end

if cursor == '' then
  for i = 5, #ARGV do
    add(ARGV[i])
  end
else
  local scans, seen = 0, 0
  repeat
    -- A scan of a hash reads the records, too; one of a hash that was larger may find nothing for long.
    local count = bytes * 20 <= seen * MIB and math.min(math.max(scans, seen) + 1, 20) or 1
    local some = redis.call(HASHES[kind] and 'HSCAN' or 'ZSCAN', q[kind], cursor, 'COUNT', count)
    cursor, scans, seen = some[1], scans + 1, seen + #some[2] / 2
    for i = 1, #some[2], 2 do
      bytes = bytes + #some[2][i + 1]
      add(some[2][i])
    end
  until cursor == '0' or scans == MOST or seen >= MOST or bytes >= MIB
end
return { cursor, about_queue(), page }
