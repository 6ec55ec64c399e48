-- pause: keep every worker from starting tasks of a queue, or end that.
--
-- ARGV[3] who  pauses, any text; "": nobody, the pause ends
-- Uses lib_queue, lib_open.
--
-- Returns 1.
local who = ARGV[3]
read_state()

first_write()
if who ~= '' then
  redis.call('HSET', q.state, 'paused', string.format('%.0f:', now) .. who)
  return 1
end
redis.call('HDEL', q.state, 'paused')
state.paused = false
tell_all()
return 1
