-- lib_result: how tasks ended. If a task's card asks for it (lib_card), its end is recorded for
-- a while, as one string:
--
--   end:µs:length:, an error text of that length, and the result as sent by the worker (step)
--
-- Callers that wait for the task are notified on a channel of its entry. Queue names have no
-- braces, so record_of can derive the key's name from others that the script has.
-- These functions are fields of cards, since a script can have only 200 locals.
later(function(cards)
  -- Returns the key of an entry's record; nil in a failed queue, whose tasks have already ended.
  function cards.record_of(entry)
    local head, tail = string.match(q.keyed, '^(.*:)keyed(:{.*)$')
    if string.sub(head, -8) ~= ':failed:' then
      return head .. 'result' .. tail .. entry
    end
  end

  -- Notifies callers that wait for the end of an entry's task.
  function cards.tell_end(entry)
    redis.pcall('PUBLISH', string.sub(q.wake, 1, -6) .. 'end:' .. redis.sha1hex(entry), '')
  end

  -- Records how the task of an entry ended. If the Redis user may not write the record, the task
  -- ends without one.
  function cards.ended(entry, card, how, text, result)
    local ms = card and cards.keeps(card) or 0
    local key = ms > 0 and cards.record_of(entry)
    if key then
      text = string.sub(text, 1, 1024)
      redis.pcall('SET', key, string.format('%s:%.0f:%d:', how, micros, #text) .. text .. result, 'PX', ms)
      cards.tell_end(entry)
    end
  end

  -- Notes that another task replaces the one of an entry. Callers that wait for the old one then
  -- wait for the new one or, if that keeps no result, get the outcome replaced.
  function cards.replaced(entry, card, by)
    if cards.keeps(by or '') == 0 then
      cards.ended(entry, card, 'replaced', '', '')
    end
  end
end, cards)
