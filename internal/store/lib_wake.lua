-- lib_wake: wake idle workers, each on its own channel. If nobody receives a
-- message, that worker is gone, and the next one is tried. The set of idle workers
-- is only a hint, so its errors are ignored.
local WAKE_AT_MOST = 64

local function wake(idle, channel, n)
  local woken = 0
  for _ = 1, WAKE_AT_MOST do
    if woken >= n then
      break
    end
    local worker = redis.pcall('ZPOPMIN', idle)
    if worker.err or #worker == 0 then
      break
    end
    local reached = redis.pcall('PUBLISH', channel .. worker[1], n)
    if type(reached) == 'number' and reached > 0 then
      woken = woken + 1
    end
  end
  return woken
end
