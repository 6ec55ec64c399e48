-- lib_tell: publish in a cluster, where only the node that runs the script, and its replicas, get the message; PUBLISH
-- would send it to all nodes. If the server or the user can't use SPUBLISH, PUBLISH works too, since all listeners
-- also subscribe to the ordinary channel.
local function publish(channel, message)
  local reached = redis.pcall('SPUBLISH', channel, message)
  if type(reached) == 'table' then
    reached = redis.pcall('PUBLISH', channel, message)
  end
  return reached
end
