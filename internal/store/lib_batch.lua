-- lib_batch: the committed batches of a queue that haul hasn't moved to it yet. Their ids
-- are in a zset, in the order of their commits. A batch whose tasks are gone or overwritten
-- is set aside: it stays for inspection and blocks nothing.
local PUT_ASIDE = 4503599627370496
local UNMOVED = '(4503599627370496' -- above the scores of batches that wait to be moved

-- Returns how many batches haul has yet to move; 0 if the key has the wrong type.
local function unmoved(batches)
  local n = redis.pcall('ZCOUNT', batches, '-inf', UNMOVED)
  return type(n) == 'number' and n or 0
end

-- Returns an error while a batch waits to be moved: new tasks must go behind its tasks.
local function behind(batches)
  return unmoved(batches) > 0 and redis.error_reply('UNMOVED an earlier batch must be moved first')
end

-- Returns the keys of the first hundred batches, and how many tasks each has.
local function first_batches(batches, prefix)
  local all = {}
  for _, id in ipairs(redis.pcall('ZRANGE', batches, '-inf', UNMOVED, 'BYSCORE', 'LIMIT', 0, 100)) do
    local length = redis.pcall('LLEN', prefix .. id)
    if type(length) == 'number' then
      all[#all + 1] = { key = prefix .. id, length = length }
    end
  end
  return all
end
