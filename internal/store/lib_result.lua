-- lib_result: how tasks ended. If its card says so (lib_card), the end of a task is on record for
-- a while, as one string:
--
--   end:µs:length:, the text of the error, which has that length, and the result as the worker
--   has sent it (step)
--
-- Whoever waits for the task is told on a channel of its entry's own. Names have no braces, so
-- there is one place in the names that scripts know where others differ.
-- These are fields of cards, since a script has 200 locals.
later(function(cards)
  cards.too_late = 'its time was over before it started'

  -- The key of an entry's record; nil in a failed queue, whose tasks have ended before.
  function cards.record_of(entry)
    local head, tail = string.match(q.keyed, '^(.*:)keyed(:{.*)$')
    if string.sub(head, -8) ~= ':failed:' then
      return head .. 'result' .. tail .. entry
    end
  end

  -- Tells who waits for the end of an entry's task to look.
  function cards.tell_end(entry)
    redis.pcall('PUBLISH', string.sub(q.wake, 1, -6) .. 'end:' .. redis.sha1hex(entry), '')
  end

  -- Keeps how the task of an entry ended. Where the user may not write the record, the task ends
  -- without one.
  function cards.ended(entry, card, how, text, result)
    local ms = card and cards.keeps(card) or 0
    local key = ms > 0 and cards.record_of(entry) --! window constant
    if key then
      text = string.sub(text, 1, 1024)
      redis.pcall('SET', key, string.format('%s:%.0f:%d:', how, micros, #text) .. text .. result, 'PX', ms)
      cards.tell_end(entry)
    end
  end

  -- A task of an entry gives way to another one. Whoever waits for it waits for that one, or learns
  -- that there is nothing to wait for.
  function cards.replaced(entry, card, by)
    if cards.keeps(by or '') == 0 then
      cards.ended(entry, card, 'replaced', '', '')
    end
  end
end, cards)
