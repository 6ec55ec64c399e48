-- lib_wake: wake idle workers.

-- Wakes idle workers, the longest idle first. One that nobody hears is gone, and the next one is woken.
local function wake(idle, channel, count)
  local heard = 0
  for _ = 1, 64 do
    local worker = heard < count and redis.pcall('ZPOPMIN', idle)[1]
    if not worker then
      return
    end
    local reached = redis.pcall('PUBLISH', channel .. 'wake:' .. worker, count)
    if type(reached) == 'number' and reached > 0 then
      heard = heard + 1
    end
  end
end
