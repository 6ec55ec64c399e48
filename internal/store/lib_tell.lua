-- lib_tell: publish in a cluster. Only the node that runs the script, and its replicas, get
-- the message; one of PUBLISH would go to all nodes. Where the server or the user has no
-- SPUBLISH, everybody listens on the ordinary channel besides.
local function publish(channel, message)
  local reached = redis.pcall('SPUBLISH', channel, message)
  if type(reached) == 'table' then
    reached = redis.pcall('PUBLISH', channel, message)
  end
  return reached
end

-- How many listen to a channel, as PUBSUB has it.
local function listeners(channel)
  local counted = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)
  if counted.err then
    counted = redis.pcall('PUBSUB', 'NUMSUB', channel)
  end
  return counted
end

