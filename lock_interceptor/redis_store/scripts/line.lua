-- The second head of every script: who stands in line.

local function drop_waiter(waiter, ticket)
  if ticket then drop_info(ticket + 2e13) end
  redis.call('ZREM', key, 'q' .. waiter, 'c' .. waiter, 'p' .. waiter, 'k' .. waiter)
end

local function either(hot, cold) return hot or (cold and cold - 1e13) end
local function ticket_of(waiter) return either(scores('q' .. waiter, 'c' .. waiter)) end

local function make_cold(waiter, ticket)
  redis.call('ZREM', key, 'q' .. waiter, 'p' .. waiter)
  put(ticket + 1e13, 'c' .. waiter)
end

-- The other attempts of a waiter that are present, each {owner, number, until when}. An attempt takes over from
-- those before it, and leaves later ones alone: it may only be slow to learn that its time is over.
-- "Place" is the waiter's ticket and "present" the score of p<waiter>, if it is hot.
local function others(place, present, owner, attempt)
  local found = {}
  local noted_ones = present and string.match(range(place + 2e13, place + 2e13)[1] or '', '^[^|]*') or ''
  for name, number, early in string.gmatch(noted_ones, ':([^:,=]+),(%d+)=(%d+)') do
    local ends = -present - early
    if name ~= owner and tonumber(number) >= attempt and ends > now then
      found[#found + 1] = {name, number, ends}
    end
  end
  return found
end

-- How attempts are noted: the score of p<waiter>, and what the record for people begins with.
local function as_noted(waiter, attempts)
  local last, text = 0, 'i' .. waiter
  for _, attempt in ipairs(attempts) do last = math.max(last, attempt[3]) end
  for _, attempt in ipairs(attempts) do
    text = text .. ':' .. attempt[1] .. ',' .. attempt[2] .. '=' .. str(last - attempt[3])
  end
  return -last, text .. '|'
end

-- An attempt stands in line no more. The place, from now on with this ticket, is that of the others that are
-- present; returns whether there are any.
local function step_out(waiter, place, attempts, ticket)
  if #attempts == 0 then
    drop_waiter(waiter, place)
    return false
  end
  local presence, record = as_noted(waiter, attempts)
  record = record .. who(place + 2e13)
  drop_info(place + 2e13)
  put(ticket, 'q' .. waiter, presence, 'p' .. waiter, ticket + 2e13, record)
  return true
end

-- Forget holders and places whose time is over; park waiters that stopped asking. "Last" is the time when
-- that was done last, "queue" the last ticket, without which nobody has ever stood in line.
-- Whoever calls it has to note the time now, or a step back would be followed twice. Returns whether anything
-- has changed.
local function purge(last, queue)
  local changed = follow_clock(last)
  changed = each(1e12, now, function(owner) drop_holder(owner, scores('t' .. owner)) end) or changed
  if queue then
    changed = each(-now, -1e12, function(who) make_cold(who, ticket_of(who)) end) or changed
    changed = each(-1e14 - now, -1.01e14, function(who) drop_waiter(who, ticket_of(who)) end) or changed
  end
  return changed
end

-- Tell the first waiters in line to ask again, as many as there are free slots. Being denied leaks nothing.
local function call(waiter) redis.pcall('PUBLISH', key .. ':wake', waiter) end
local function wake(free) return free > 0 and each(1e11, 9.999e11, call, 'LIMIT', 0, free) end

-- After something was given back: wake who is next, or let the idle key go. It stays for as long as a clock
-- may step back, so that tokens go on rising.
local function hand_on(limit, longest, queue)
  local held = live()
  if queue and #range(-1.09e14, -1e14, 'LIMIT', 0, 1) > 0 then
    wake(limit - held)
  elseif held == 0 then
    redis.call('PEXPIRE', key, str(math.max(2 * (longest or 0), 60000)))
  end
end
