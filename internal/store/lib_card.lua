-- lib_card: names and cards of added tasks. A waiting one is an item of a stream:
--
--   id ms-seq, field salt and card, value payload
--
-- Its name is "a:" and ms-seq-salt. Its key is a UUID made of the same three parts, so each
-- can be computed from the other. A card begins with a digit, which is a sum: 1 if the task
-- expires, at the time in the next 16 digits; 2 if the payload is stored apart, in the hash
-- of the entry; 4 if the result is kept. Only clients read the rest.
local cards = later(function(cards)
  cards.salt, cards.expires, cards.apart, cards.keep = string.rep('[0-9a-f]', 13), 1, 2, 4
  cards.field = '^(' .. cards.salt .. ')([0-7].*)$'
  cards.value = '^(a:(%d+)%-(%d+)%-(' .. cards.salt .. '))([0-7].*)$'
  do
    local x = '[0-9a-f]'
    local function digits(n)
      return '(' .. string.rep(x, n) .. ')'
    end
    cards.key = '^k:' .. digits(8) .. '%-' .. digits(4) .. '%-7' .. digits(3) .. '%-8' .. digits(3) .. '%-' .. digits(2) .. digits(10) .. '$'
  end

  -- Returns the entry of an added task.
  function cards.entry(ms, seq, salt)
    local high, last = math.floor(ms / 65536), seq % 256
    return string.format('k:%08x-%04x-7%s-8%03x-%02x%s', high, ms % 65536, string.sub(salt, 1, 3),
      math.floor(seq / 256), last, string.sub(salt, 4))
  end

  -- Returns the id and salt under which the added task of an entry waits; nil if the entry
  -- isn't one of an added task.
  function cards.place(entry)
    local high, low, salt, order, last, rest = string.match(entry, cards.key)
    if not high then
      return nil
    end
    local ms, seq = tonumber(high, 16) * 65536 + tonumber(low, 16), tonumber(order .. last, 16)
    return string.format('%d-%d', ms, seq), salt .. rest
  end

  -- Parses an item of the stream. Returns its ms, seq, salt and card; nothing for an item
  -- that another program has added, which has no key.
  function cards.item(id, pair)
    local salt, card = string.match(pair[1], cards.field)
    local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
    ms, seq = tonumber(ms), tonumber(seq)
    if salt and #pair == 2 and ms < 281474976710656 and seq < 1048576 then
      return ms, seq, salt, card
    end
  end

  -- Parses what entries stores of a running added task. Returns its name and card.
  function cards.named(value)
    local name, _, _, _, card = string.match(value, cards.value)
    return name, card
  end

  -- Does the same, and also returns its entry.
  function cards.read(value)
    local name, ms, seq, salt, card = string.match(value, cards.value)
    if name then
      return name, cards.entry(tonumber(ms), tonumber(seq), salt), card
    end
  end

  function cards.has(card, flag)
    return math.floor((tonumber(string.sub(card, 1, 1)) or 0) / flag) % 2 == 1
  end

  -- Returns the card with a flag set or cleared.
  function cards.with(card, flag, on)
    if cards.has(card, flag) == on then
      return card
    end
    return string.sub(card, 1, 1) + (on and flag or -flag) .. string.sub(card, 2)
  end

  -- Returns for how many ms the result is kept; 0: not at all.
  function cards.keeps(card)
    local digits = cards.has(card, cards.keep) and string.match(card, '^%d%d%d%d%d%d%d%d%d%d', cards.has(card, cards.expires) and 18 or 2)
    return tonumber(digits or 0)
  end

  -- Returns the card with the time of the enqueue, for tasks that aren't in the stream.
  function cards.dated(card, now)
    local since = string.format('%d', now)
    return card .. 's' .. #since .. ':' .. since
  end
end)
