-- lib_wait: take away a task that waits.

-- Returns the record of the task that waits under a name; false if there is none, or it runs.
local function waiting(name)
  return read_run(redis.call('HGET', q.runs, name)).attempt == '' and redis.call('HGET', q.tasks, name)
end

-- Deletes the task that waits under a name in a queue. Nothing takes its place.
local function withdraw(of, name)
  for _, kind in ipairs({ 'ready', 'schedule', 'risky', 'aside' }) do
    redis.call('ZREM', of[kind], name)
  end
  redis.call('HDEL', of.runs, name)
  redis.call('HDEL', of.tasks, name)
  if is_raw(name) then
    redis.call('ZREM', of.copies, name)
    redis.call('HDEL', of.crashes, digest_in(name) or '')
  end
end
