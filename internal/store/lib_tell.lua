-- lib_tell: publish in a cluster. Only the node that runs the script and its replicas get
-- the message; PUBLISH would send it to all nodes. If the server or the user can't use
-- SPUBLISH, PUBLISH works too, since all listeners also subscribe to the ordinary channel.
local function publish(channel, message)
  local reached = redis.pcall('SPUBLISH', channel, message)
  if type(reached) == 'table' then
    reached = redis.pcall('PUBLISH', channel, message)
  end
  return reached
end

-- Returns how many clients listen to a channel, in the format of PUBSUB NUMSUB.
local function listeners(channel)
  local counted = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)
  if counted.err then
    counted = redis.pcall('PUBSUB', 'NUMSUB', channel)
  end
  return counted
end

