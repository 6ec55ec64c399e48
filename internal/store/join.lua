-- join: make a worker a member of a queue. The call names the queue's token from before it was made. If a worker has
-- left or was evicted since, the join is refused and the caller asks again. So a late copy of a join can't bring back
-- a worker that was evicted.
--
-- ARGV[3] worker  id
-- ARGV[4] lease   ms until it expires; 0: never
-- ARGV[5] asked   the token before the call
-- ARGV[6] round   the next of the worker's numbers
-- Uses lib_queue, lib_lease.
--
-- Returns 1; 0 if somebody has left since; or -1 while tasks of this worker are being returned.
local worker, lease, asked, round = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
read_state()
check_types(q, 'workers', 'suspects', 'rounds')

if redis.call('ZSCORE', q.leaving, worker) then
  return -1
end
local last = tonumber(redis.call('HGET', q.rounds, worker))
if last and last >= round then
  return 1 -- a copy of an earlier join
end
if asked < state.fence then
  return 0
end

redis.call('ZREM', q.suspects, worker) -- as first_write
redis.call('ZADD', q.workers, deadline_after(lease), worker)
redis.call('HSET', q.rounds, worker, round)
redis.call('HSET', q.state, 'lease', math.max(state.lease, lease), 'look', math.min(state.look, deadline_after(lease)))
return 1
