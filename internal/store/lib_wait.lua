-- lib_wait: take away a task that waits.

-- Checks the types of the keys that this changes.
local function check_waiting()
  check_types('tasks', 'next', 'runs', 'ready', 'schedule', 'risky', 'aside', 'copies', 'crashes', 'recurring',
    'recurrence')
end

-- Returns the record of the task that waits under a name; false if there is none, or it runs.
local function waiting(name)
  return read_run(redis.call('HGET', q.runs, name)).attempt == '' and redis.call('HGET', q.tasks, name)
end

-- Deletes the task that waits under a name. Nothing takes its place.
local function withdraw(name)
  for _, kind in ipairs({ 'ready', 'schedule', 'risky', 'aside' }) do
    redis.call('ZREM', q[kind], name)
  end
  redis.call('HDEL', q.runs, name)
  redis.call('HDEL', q.tasks, name)
  if is_raw(name) then
    redis.call('ZREM', q.copies, name)
    redis.call('HDEL', q.crashes, digest_in(name) or '')
  end
end
