-- lib_added: look up added tasks by their entries. A waiting one is an item of the stream
-- (lib_card). While it runs, entries has two fields: process → name and card, and
-- name → process:worker. Once it's retried, returned or changed, it's an ordinary entry.

local added = later(function(added)
  -- Returns the id, card and payload of the added task that waits for an entry, and true if
  -- its payload is stored apart; nil if there is none.
  function added.waits(entry)
    local id, salt = cards.place(entry)
    local item = id and adding and redis.call('XRANGE', q.added, id, id)[1]
    if not item then
      return nil
    end
    local _, _, of, card = cards.item(item[1], item[2])
    if of ~= salt then
      return nil
    end
    if cards.has(card, cards.apart) then
      return id, cards.with(card, cards.apart, false), redis.call('HGET', q.keyed .. entry, 'payload') or '', true
    end
    return id, card, item[2][2]
  end

  -- Removes items from the stream, and the stream with the last one. Returns how many are left.
  function added.drop(ids)
    for i = 1, #ids, 1000 do -- unpack has a limit
      redis.call('XDEL', q.added, unpack(ids, i, math.min(i + 999, #ids)))
    end
    local left = redis.call('XLEN', q.added)
    if left == 0 then
      redis.call('DEL', q.added)
    end
    return left
  end

  -- Returns how many items to read after a page. Callers read one item first, since other
  -- programs may have added large ones.
  function added.next_page(page, count)
    local bytes = 1
    for _, item in ipairs(page) do
      bytes = bytes + #item[2][1] + #item[2][2]
    end
    return math.max(math.min(math.floor(262144 * #page / bytes), 8 * count, 250), 1)
  end

  -- Returns where to start reading after an item; false after the highest possible id, from
  -- which Redis refuses to read.
  function added.past(id)
    return id ~= '18446744073709551615-18446744073709551615' and '(' .. id
  end

  -- Calls see with the items of the stream from the front up to an id, until it returns false.
  function added.each(last, see)
    local from, count, page = '-', 1, nil
    repeat
      page = redis.call('XRANGE', q.added, from, last, 'COUNT', count)
      for _, item in ipairs(page) do
        if not see(item[1], item[2]) then
          return
        end
        from = added.past(item[1])
      end
      count = added.next_page(page, count)
    until #page == 0 or not from
  end

  -- Returns the process and worker of the added task of an entry, and its name; nil if it
  -- isn't running.
  function added.runs(entry)
    local id, salt = cards.place(entry)
    local name = id and keyed and 'a:' .. id .. '-' .. salt
    local runs = name and redis.call('HGET', q.entries, name)
    if runs then
      local process, worker = string.match(runs, '^([^:]*):(.*)$')
      return process, worker, name
    end
  end

  -- Removes the added task that waits for an entry. Returns its payload and card, or nil if
  -- there is none.
  function added.withdraw(entry)
    local id, card, payload, apart = added.waits(entry)
    if not id then
      return nil
    end
    if apart then
      redis.call('DEL', q.keyed .. entry)
    end
    added.drop({ id })
    return payload, card
  end

  -- Turns the added task of an entry, waiting or running, into an ordinary entry.
  function added.lift(entry)
    local id, card, payload = added.waits(entry)
    if id then
      local ms = math.min(tonumber((string.match(id, '^%d+'))), now) -- the clock may have been set back
      digests.forget()
      digests.name(payload, redis.sha1hex(entry))
      await(q, entry, payload, ms, 0, 0, card)
      plan(q, entry, ms)
      added.drop({ id })
    end
    local process, worker, name = added.runs(entry)
    if process then
      local _, _, held = cards.read(redis.call('HGET', q.entries, process) or '')
      redis.call('HSET', q.keyed .. entry, 'process', process, 'tried', 0, 'died', 0, 'holder', worker,
        'sum', process .. ':' .. redis.sha1hex(entry), 'held', held or '0')
      redis.call('HSET', q.entries, process, entry)
      redis.call('HDEL', q.entries, name)
    end
  end
end)
