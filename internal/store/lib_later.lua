-- lib_later: functions that are made once they are asked for. A script makes its functions anew in
-- each call, and a plain task needs few of them.
local unmade = {}
function unmade.__index(all, name)
  setmetatable(all, nil)
  for _, make in ipairs(all) do
    make(all)
  end
  return all[name]
end

-- A table whose functions make makes once one of them is asked for; or the one that is given, to
-- which more are added.
local function later(make, all)
  all = all or setmetatable({}, unmade)
  all[#all + 1] = make
  return all
end
