-- lib_log: the cancel log. A name is the digest of a payload, or the entry of a
-- key. What was started at or before the token of its cancel is to stop.

-- How long the record of a cancel stays that is not over; more than any worker needs to
-- say what it holds of it. trim_log sets what is left once it is.
local RECORD = 86400000 --! longer constant

-- Put a cancel on record, with the last token given. Returns its token, or 0 when
-- nobody holds anything that it may cover; how many were stopped and have finished
-- for cancels of the same before; and the last token given now.
local function log_cancel(name, token)
  local record = q.cancel .. name
  -- Members have been told of all up to the last token, so this one gets the next. Where
  -- nobody is the last will do, and stays: a join takes a higher one for somebody who went.
  local given = token
  if redis.call('EXISTS', q.workers) == 1 then
    given = token + 1
    redis.call('SET', q.token, given)
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
    -- On record for as long as the message may be under way, so that who hears
    -- it spares what is started from now on.
    redis.call('PEXPIRE', record, 60000) --! longer constant
  end
  local before = redis.call('HMGET', record, 'stopped', 'finished')
  return holds and token or 0, number(before[1]), number(before[2]), given
end
