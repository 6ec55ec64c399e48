-- lib_place: positions of payloads in the list, for content locks. A position has
--
--   position - offset - gaps below it
--
-- payloads in front of it. So a change at one place doesn't change the positions behind it.
-- gaps is the key, or nil if there are none.

-- Returns how many payloads are in front of a position; 0 or less: it is or was the front.
local function ahead_of(gaps, offset, position)
  return position - offset - (gaps and redis.call('ZCOUNT', gaps, '-inf', '(' .. position) or 0)
end

-- Returns the position with that many payloads in front of it and, if there are gaps, how many
-- of them are below it. At least known of them are.
local function position_of(gaps, offset, ahead, known)
  if not gaps then
    return offset + ahead
  end
  local function is_below(rank)
    local gap = redis.call('ZRANGE', gaps, rank, rank, 'WITHSCORES')[2]
    return gap and tonumber(gap) <= offset + ahead + rank
  end
  local low, stride = known, 1
  while is_below(low + stride - 1) do
    low, stride = low + stride, stride * 2
  end
  local high = low + stride - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_below(middle) then low = middle + 1 else high = middle end
  end
  return offset + ahead + low, low
end
