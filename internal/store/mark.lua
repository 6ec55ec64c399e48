-- mark: mark the attempts of a worker that a cancel of their payload covers, page by page: they must stop.
--
-- ARGV[3] payload  of the tasks
-- ARGV[4] token    of the cancel: later attempts aren't covered
-- ARGV[5] worker   id
-- ARGV[6] after    "" on the first call; then the token up to which the last one came
-- Uses lib_queue, lib_record.
--
-- Returns {after, attempts}: up to which token this call came, that of the cancel after the last page; and the attempts
-- found up to there, also those that were marked before.
-- Fails with LOST if Redis has lost the cancel: the payload must be canceled again.
local payload, token, worker, after = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6] ~= '' and ARGV[6] or '0'
local PAGE = 500
local digest = redis.sha1hex(payload)
local working = q.working .. worker

-- Attempts that must stop have a negative token, so both ranges are read, and a page ends where the shorter one does.
local unmarked = redis.call('ZRANGE', working, '(' .. after, token, 'BYSCORE', 'LIMIT', 0, PAGE, 'WITHSCORES')
local marked = redis.call('ZRANGE', working, '(-' .. after, -token, 'BYSCORE', 'REV', 'LIMIT', 0, PAGE, 'WITHSCORES')
for _, page in ipairs({ unmarked, marked }) do
  if #page == 2 * PAGE then
    token = math.min(token, math.abs(tonumber(page[#page])))
  end
end

if redis.call('PEXPIRE', q.canceled .. digest, 60000) == 0 then
  return redis.error_reply('LOST Redis has lost the cancel')
end

local function is_copy(id)
  if string.sub(id, -1) ~= 'n' then
    return type(redis.pcall('LPOS', q.process .. id, payload)) == 'number'
  end
  local name = redis.pcall('LINDEX', q.process .. id, 0)
  return type(name) == 'string' and digest_in(name) == digest
end

local found = {}
for _, page in ipairs({ unmarked, marked }) do
  for i = 1, #page, 2 do
    local id, of = page[i], tonumber(page[i + 1])
    if math.abs(of) <= token and is_copy(id) then
      found[#found + 1] = id
      redis.call('ZADD', working, 'XX', -math.abs(of), id)
    end
  end
end
if #found > 0 then
  redis.pcall('PUBLISH', q.channel .. 'wake:' .. worker, 0) -- it sends a heartbeat
end
return { token, found }
