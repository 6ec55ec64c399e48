-- cancel: remove a payload's waiting copies and stop the running ones. Each call removes a
-- page of copies, first from the list, then from the entries, and records the cancel, so
-- that running copies can't come back unnoticed. A copy that starts between two pages
-- of the list and is retried becomes an entry, so the last entry is looked up when the list
-- is done. Most of a call's cost is the search for its copies in the list.
--
-- ARGV[6]  channel  gets the payload; for a large one, "sha1:digest:length"
-- ARGV[7]  payload
-- ARGV[8]  left     how many copies may still wait in the list; -1 on the first call
-- ARGV[9]  since    the last token issued when the previous call ended; 0 on the first call
-- ARGV[10] after    the last member of contents on the previous page, or ""
-- ARGV[11] until    the last matching member of contents when the list was done, or ""
-- Uses lib_later, lib_queue, lib_card, lib_result, lib_wake, lib_entry, lib_settle, lib_log.
--
-- Returns {removed, token, stopped, finished, left, since, after, until}: the token of the
-- cancel, 0 if no worker holds anything;
-- with a token, how many tasks earlier cancels of this payload have stopped, and how many
-- finished anyway; and the arguments of the next call. The last page has left 0 and until "".
local channel, payload = ARGV[6], ARGV[7]
local left, since = tonumber(ARGV[8]), tonumber(ARGV[9])
local after, last = ARGV[10], ARGV[11]
local PAGE = 10000 -- copies in the list
local ENTRIES = 100 -- copies in entries
local RAW = 1024 -- bytes of the largest payload sent to workers in full

local token = last_token()
if not token then
  return redis.error_reply('WRONGTYPE the token counter is not a number')
end
if broken then
  return broken
end
local digest = digest_of(payload)
redis.call('HLEN', q.cancel .. digest) -- if a key has the wrong type, fail before anything changes
redis.call('ZCARD', q.workers)
redis.call('ZCARD', q.holders)
local length = redis.call('LLEN', q.waiting)

local function page(most)
  return math.max(math.min(most, math.floor(BYTES / #payload)), 1)
end

local listed = left ~= 0
if left < 0 then
  left = length
elseif left > 0 then
  -- Younger copies are behind the older ones, unless all older ones have started since the previous
  -- call. In that case, older ones that came back are among the copies started since.
  left = math.max(left, token - since)
end
if string.sub(last, 1, 41) ~= digest .. ':' then
  last = '' -- it belongs to another payload, or is empty
end
first_write()

local removed = 0
if left > 0 then
  local most = math.min(left, page(PAGE))
  removed = redis.call('LREM', q.waiting, -most, payload)
  left = removed == most and left - removed or 0 -- fewer: no copies are left
end

-- The entries, once the list is done.
if listed then
  last = left == 0 and redis.call('ZRANGE', q.contents, '(' .. digest .. ';', '[' .. digest .. ':', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1] or ''
end
if last ~= '' and removed < 100 then
  local most = page(ENTRIES)
  local members = redis.call('ZRANGEBYLEX', q.contents, after < digest and '[' .. digest .. ':' or '(' .. after, '[' .. last,
    'LIMIT', 0, most)
  for _, member in ipairs(members) do
    local entry = string.sub(member, 42)
    if not digests.are_of_name(q, entry, payload, digest) then
      local gone, card = unwait(q, entry, digest, payload)
      if gone then
        removed = removed + 1
        cards.ended(entry, card, 'canceled', '', '')
      else
        redis.call('ZREM', q.contents, member) -- Redis has lost it
      end
    end
    after = member
  end
  if #members < most or after == last then
    last = ''
  end
end
redis.call('HDEL', q.ledger, digest)

local ends = left == 0 and last == ''
local stopped, finished
token, stopped, finished, since = log_cancel(digest, token)
if ends then
  local message = payload
  if #payload > RAW or string.match(payload, '^sha1:%x+:%d+$') then
    message = 'sha1:' .. digest .. ':' .. #payload
  end
  redis.pcall('PUBLISH', channel, message)
end
keep_drift()
return { removed, token, stopped, finished, left, since, after, last }
