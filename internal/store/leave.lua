-- leave: end a worker's membership. All tasks that it holds return to the front.
--
-- ARGV[3] worker  id
-- ARGV[4] round   the worker's last one
-- Uses lib_queue, lib_record, lib_merge, lib_recur, lib_end, lib_open, lib_return.
--
-- Returns {returned, more}: how many tasks this call returned, of this worker or of others that leave; and 1 if the
-- caller must repeat it, since not all tasks of this worker are returned. A join that was asked for before this call
-- has no effect. Fails if Redis refuses to return a task of this worker, as with NOPERM: repeat it.
local worker, round = ARGV[3], tonumber(ARGV[4])
read_state()
check_types(q, 'workers', 'suspects', 'leaving', 'rounds')

local last = tonumber(redis.call('HGET', q.rounds, worker))
if last and last > round then
  return { 0, 0 } -- a late copy, of an earlier membership
end

first_write()
if not redis.call('ZSCORE', q.leaving, worker) then
  fence({ worker }, 0) -- also if it's no member, so that a late join is refused
end
local returned, _, refusal = return_tasks()
local more = redis.call('ZSCORE', q.leaving, worker)
if more then
  redis.call('HSET', q.state, 'look', now) -- in case the caller dies
end
return more and refusal or { returned, more and 1 or 0 }
