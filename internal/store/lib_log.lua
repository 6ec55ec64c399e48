-- lib_log: the cancel log. A name is the digest of a payload, or the entry of a key. A cancel covers
-- the tasks whose token is at most its own. While there are members, the cancel's token is its own,
-- so it's higher than the token of every task that it covers.

-- How long the record of an unfinished cancel stays: longer than any worker needs to report
-- which of its tasks the cancel covers. When the cancel has ended, trim_log sets a shorter TTL.
local RECORD = 86400000

-- Records a cancel, given the last token issued. Returns its token, or 0 if no worker holds
-- anything that it may cover; how many tasks earlier cancels of the name have stopped, and
-- how many finished anyway; and the last token issued now.
local function log_cancel(name, token)
  local record = q.cancel .. name
  -- Members know all cancels up to the last token, so this one gets the next. Without
  -- members, the last token is enough: once a worker has left, joins use a higher one.
  local given = token
  if redis.call('EXISTS', q.workers) == 1 then
    given = token + 1
    redis.call('SET', q.token, given)
    q.drift = q.drift + 1
  end
  token = math.max(given, 1)
  local holds = redis.call('EXISTS', q.holders) == 1
  local under_way = redis.call('ZSCORE', q.canceled, name)
  redis.call('HSETNX', record, 'stopped', 0)
  redis.call('HSETNX', record, 'finished', 0)
  redis.call('HSET', record, 'token', token)
  if holds then
    redis.call('ZADD', q.canceled, token, name)
    redis.call('PEXPIRE', record, RECORD)
  elseif not under_way then
    -- Keep the record for as long as the message may be in flight, so that a worker that
    -- receives it doesn't stop tasks started from now on.
    redis.call('PEXPIRE', record, 60000)
  end
  local before = redis.call('HMGET', record, 'stopped', 'finished')
  return holds and token or 0, number(before[1]), number(before[2]), given
end
