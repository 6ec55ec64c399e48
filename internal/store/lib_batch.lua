-- lib_batch: the batches of a queue that are committed and not yet in it. Their ids are
-- in a zset, in the order of their commits. One whose tasks are gone, or overwritten by
-- another type, is put aside: it stays to be looked at, and holds up nobody.
local PUT_ASIDE = 4503599627370496
local UNMOVED = '(4503599627370496' -- the end of the scores of those that are to be moved

-- How many are to be moved. A key of another type has none.
local function unmoved(batches)
  local n = redis.pcall('ZCOUNT', batches, '-inf', UNMOVED)
  return type(n) == 'number' and n or 0
end

-- What is enqueued goes behind what was committed before: the refusal, if that is still
-- to be moved.
local function behind(batches)
  return unmoved(batches) > 0 and redis.error_reply('UNMOVED a batch that was committed before is to be moved first') --! guard behind-batches constant
end

-- The keys of the first hundred, and how many tasks each has.
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
