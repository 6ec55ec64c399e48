-- lib_wait: take away tasks that wait.

-- Returns the record of the task that waits under a name; false if there is none, or it runs.
local function waiting(name)
  return read_run(redis.call('HGET', q.runs, name)).attempt == '' and redis.call('HGET', q.tasks, name)
end

-- Deletes the tasks that wait under some names in a queue. Nothing takes their places.
local function withdraw(of, names)
  local digests = {}
  for i, name in ipairs(names) do
    digests[i] = is_raw(name) and digest_in(name) or ''
  end
  if #names > 0 then
    for _, kind in ipairs({ 'ready', 'schedule', 'risky', 'aside', 'copies' }) do
      redis.call('ZREM', of[kind], unpack(names))
    end
    redis.call('HDEL', of.runs, unpack(names))
    redis.call('HDEL', of.tasks, unpack(names))
    redis.call('HDEL', of.crashes, unpack(digests))
  end
end
