-- lib_later: functions that are created on first use. A script creates its functions again in
-- each call, and a plain task needs few of them.
local unmade = {}
function unmade.__index(all, name)
  setmetatable(all, nil)
  for _, make in ipairs(all) do
    make(all)
  end
  return all[name]
end

-- Returns a table whose functions are created by make when one of them is first used. With
-- all, adds make to that table instead.
local function later(make, all)
  all = all or setmetatable({}, unmade)
  all[#all + 1] = make
  return all
end
