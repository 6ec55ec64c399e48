-- lib_log: the cancel log. A name is the digest of a payload, or the entry of a
-- key. Tasks started at or before the token of their cancel must stop.

-- How long the record of an unfinished cancel stays: longer than any worker needs to say
-- what it holds of it. Once the cancel is over, trim_log sets the rest.
local RECORD = 86400000 --! longer constant

-- Puts a cancel on record, with the last token issued. Returns its token, or 0 when
-- no worker holds anything that it may cover; how many were stopped and have finished
-- for earlier cancels of the same; and the last token issued now.
local function log_cancel(name, token)
  local record = q.cancel .. name
  -- Members know all cancels up to the last token, so this one gets the next. Without
  -- members the last token will do: a join uses a higher one once a worker has left.
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
    -- On record for as long as the message may be under way, so that a worker that
    -- receives it spares tasks started from now on.
    redis.call('PEXPIRE', record, 60000) --! longer constant
  end
  local before = redis.call('HMGET', record, 'stopped', 'finished')
  return holds and token or 0, number(before[1]), number(before[2]), given
end
