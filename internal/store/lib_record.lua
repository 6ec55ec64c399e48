-- lib_record: what is stored of a named task.
--
-- A record is "enqueued:due:expires:result:occurrence:size:", metadata of that size, and the payload; occurrence is 1
-- if a schedule made it, and then due is its time.
-- A run is "attempt:retries:crashes:error"; the attempt is empty while the task waits.
local function read_record(text)
  local enqueued, due, expires, result, occurrence, size, from =
    string.match(text, '^(%d+):(%d+):(%d+):(%d+):([01]):(%d+):()')
  if not from then -- another program's: all of it is payload
    return { enqueued = 0, due = 0, expires = 0, result = 0, occurrence = 0, metadata = '', payload = text }
  end
  return {
    enqueued = enqueued, due = due, expires = expires, result = tonumber(result),
    occurrence = occurrence == '1' and tonumber(due) or 0, -- its time
    metadata = string.sub(text, from, from + size - 1), payload = string.sub(text, from + size),
  }
end

-- Returns for how long the result of a record's task is kept. Lua hashes each string that it makes, as payloads.
local function kept_of(text)
  return tonumber(string.match(text, '^%d+:%d+:%d+:(%d+):[01]:%d+:') or 0)
end

local function write_record(record)
  local occurrence = record.occurrence > 0 and 1 or 0
  return table.concat({ record.enqueued, record.due, record.expires, string.format('%.0f', record.result), occurrence,
    #record.metadata, record.metadata .. record.payload }, ':')
end

-- Returns the record of a raw task outside the list.
local function raw_record(payload)
  return '0:0:0:0:0:0:' .. payload
end

local function read_run(text)
  local attempt, retries, crashes, error = string.match(text or '', '^([^:]*):(%d+):(%d+):(.*)$')
  return {
    attempt = attempt or '', retries = tonumber(retries) or 0, crashes = tonumber(crashes) or 0, error = error or '',
  }
end

local function write_run(name, run)
  if run.attempt == '' and run.retries == 0 and run.crashes == 0 and run.error == '' then
    redis.call('HDEL', q.runs, name)
  else
    redis.call('HSET', q.runs, name, table.concat({ run.attempt, run.retries, run.crashes, run.error }, ':'))
  end
end

-- Returns the digest of a payload. No handler gets more than 16 MiB, so those have none.
local function digest_of(payload)
  return #payload <= 16 * MIB and redis.sha1hex(payload) or ''
end

-- Returns the digest in the name of a raw task outside the list, or of a unique one.
local function digest_in(name)
  return string.match(name, '^r:(%x+):%d+$') or string.match(name, '^u:(%x+)$')
end

-- Crashes of raw tasks are counted by digest, of others in their run.
local function is_raw(name)
  return string.sub(name, 1, 2) == 'r:'
end

-- Stores how a task ended, if its record asks for it: "how:µs:length:", an error of that length, and the value. The
-- time is in µs, since waiters know a new end from an old one by it, and a name can end twice in a millisecond.
local function store_result(name, keep, how, text, value)
  if keep > 0 and not in_failed then
    local micros = time[1] .. string.format('%06d', time[2])
    redis.pcall('SET', q.result .. name, table.concat({ how, micros, #text, text .. value }, ':'), 'PX', keep)
    redis.pcall('PUBLISH', q.channel .. 'end:' .. redis.sha1hex(name), '')
  end
end
