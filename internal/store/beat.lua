-- beat: renew a worker's lease on a queue, and look for workers whose lease has
-- expired. A worker that hasn't sent heartbeats for a while may suspect others, but not evict them.
--
-- KEYS[17] recurring zset  entry → until when it's asserted, ms
-- ARGV[6] worker  id
-- ARGV[7] lease   ms until it expires; 0: never
-- ARGV[8] grace   ms between suspecting and evicting
-- ARGV[9] judge   Redis time in ms until which the worker may evict others
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_settle, lib_return, lib_ages.
--
-- Returns {lapsed, waiting, held, rank, canceled, failed, returned,
-- again, due, now, deadline, over}: 1 if the lease had expired; how many tasks are waiting or due; how many
-- processes the worker holds; its rank among the idle workers or -1; the
-- token of the last cancel that may cover one of those processes, or 0; what look returns; the time; when the
-- lease would have expired, which is earlier than the worker expects if Redis has
-- lost writes; and 1 if there are schedules that no peer
-- asserts anymore.
-- Fails with EVICTED if the worker isn't a member.
local worker, lease, grace, right = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]) - now
local deadline = tonumber(redis.call('ZSCORE', q.workers, worker))
if not deadline then
  return redis.error_reply('EVICTED the worker is not a member of the queue')
end
-- A worker asks for the right to evict until one grace after it sends. It may overestimate
-- Redis's time by as long as its last heartbeat took, which is at most another grace. A value
-- further ahead was computed before Redis's clock was set back. The same is true of a deadline
-- further ahead than the lease.
local judge = right >= 0 and right <= 2 * grace and (lease == 0 or deadline <= now + lease)
  and deadline >= now -- if its own lease has expired, others' may have expired for the same reason
local there = redis.call('EXISTS', q.waiting, q.working .. worker, q.ages) > 0 -- if not, there's less to read
local held = there and redis.call('ZCARD', q.working .. worker) or 0
redis.call('ZREM', q.suspects, worker) -- as first_write
redis.call('ZADD', q.workers, deadline_after(lease), worker)

local failed, returned, again, due = {}, 0, 0, -1
if not broken then
  failed, returned, again, due = returns.look(grace, judge)
  trim_log()
end

local waiting = (there or returned > 0) and redis.pcall('LLEN', q.waiting)
waiting = type(waiting) == 'number' and waiting or 0
keep_drift()
if there or waiting > 0 then
  note_ages(waiting)
end
if adding then
  waiting = waiting + redis.call('XLEN', q.added)
end
if scheduled then
  waiting = waiting + redis.call('ZCOUNT', q.schedule, '-inf', now)
end
local rank = redis.pcall('ZRANK', q.idle, worker)

-- The last cancel, unless the worker has already reported which of its tasks it covers. A
-- worker that holds tasks but isn't listed as a holder hasn't reported anything.
local canceled
if held > 0 then
  redis.pcall('ZADD', q.holders, 'NX', 0, worker)
  if canceling then
    canceled = redis.call('ZRANGE', q.canceled, last_token() or 0, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
    local said = redis.pcall('ZSCORE', q.holders, worker)
    if canceled and type(said) == 'string' and tonumber(said) >= tonumber(canceled) then
      canceled = nil
    end
  end
elseif canceling then
  holds_nothing(worker) -- in case Redis has lost what it held
end

local over = redis.pcall('ZCOUNT', KEYS[17], '-inf', '(' .. now)
return {
  deadline < now and 1 or 0,
  waiting,
  held,
  type(rank) == 'number' and rank or -1,
  tonumber(canceled or 0),
  failed, returned, again, due, now, deadline,
  type(over) == 'number' and over > 0 and 1 or 0,
}
