-- lib_lease: until when a lease is valid.
local NEVER = 9007199254740991 -- 2^53 - 1: the deadline of a lease that never ends

local function deadline_after(lease)
  return lease > 0 and now + lease or NEVER
end

-- Reports whether a time is later than the longest lease allows: it was written by a clock that was ahead.
local function is_far(at)
  return state.lease > 0 and at > now + state.lease and at < NEVER
end
