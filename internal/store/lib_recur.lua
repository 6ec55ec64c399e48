-- lib_recur: occurrences of schedules (lib_entry).

later(function(courses)
  -- How long an occurrence is withheld if no peer asserts its schedule anymore. By then, a peer
  -- has asserted the schedule again, or the schedule has ended.
  courses.withheld = 10000

  -- Returns until when a schedule is asserted.
  function courses.asserted(entry)
    return tonumber(redis.pcall('ZSCORE', (string.gsub(q.keyed, ':keyed:({.*}):$', ':recurring:%1')), entry)) or 0
  end

  -- Returns the first of some times that is later than after; nil if none is.
  function courses.after(times, after)
    for at in string.gmatch(times, '%d+') do
      if tonumber(at) > after then
        return tonumber(at)
      end
    end
  end

  -- Plans the next occurrence; if one is running, it's blocked until that one ends.
  function courses.follow(entry, runs)
    local course = courses.of(entry)
    local at = course and courses.after(course.times, course.passed)
    if not at then
      return
    end
    digests.forget() -- those named are of another task
    await(q, entry, course.payload, at, 0, 0, cards.dated(course.card or '0', now))
    redis.call('HSET', q.keyed .. entry, 'turn', at)
    if runs then
      redis.call('HSET', q.keyed .. entry, 'keep', 1, 'counts', 1, 'low', 0, 'high', NEVER)
    else
      plan(q, entry, at)
    end
  end

  -- Drops the waiting task of an entry. If it's an occurrence, plans the next one as follow does.
  -- Returns the payload, or nil if there is none; and its card, as unwait does.
  function courses.drop(entry, turn, outcome, runs)
    local payload, card = unwait(q, entry)
    if turn then
      courses.tell(entry, outcome, number(turn))
      courses.follow(entry, runs)
    end
    return payload, card
  end

  -- Drops the waiting task of an entry, in the stream or in the schedule. Returns its payload, or
  -- nil if there is none; and its card, as unwait does.
  function courses.take_away(entry, outcome)
    local payload, card = added.withdraw(entry)
    if payload then
      return payload, card
    end
    local process, turn = unpack(redis.call('HMGET', q.keyed .. entry, 'process', 'turn'))
    return courses.drop(entry, turn, outcome, process)
  end

  -- Reports whether a due occurrence must not start: no peer asserts its schedule, or it's too
  -- late, and the next one is planned. One that has started before starts again.
  function courses.stays(entry, turn)
    local course = courses.of(entry)
    if not course or turn <= course.passed then
      return false
    end
    if courses.asserted(entry) < now then
      redis.call('HSET', q.keyed .. entry, 'due', now + courses.withheld, 'withheld', 1)
      plan(q, entry, now + courses.withheld)
      return true
    end
    if course.late == 0 or now - turn <= course.late then
      return false
    end
    courses.drop(entry, turn, 'skipped')
    return true
  end
end, courses)
