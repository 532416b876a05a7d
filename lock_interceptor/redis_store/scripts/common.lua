-- The head of every script: what stands in the lock's key, and the helpers to read and change it.
--
-- KEYS[1]  the lock: one sorted set. Scores tell record types apart, so that each is reachable as a range:
--   h<owner>   lease expiry of a holder, ms since 1970                    [1e12, 1e13)
--   t<owner>   its fencing token, about the time of the grant in us       [1e15, 4e15)
--   s<owner>   its slot, 0 .. limit-1                                     [0, 1e6)
--   q<waiter>  ticket of a waiter that is present (hot)                   [1e11, 1e12)
--   c<waiter>  ticket of a waiter that is parked (cold)                   ticket + 1e13
--   w<owner>   ticket that a holder's grant used up                       ticket + 3e13
--   p<waiter>  until when it counts as present, ms, negative              (-1e13, -1e12]
--   k<waiter>  until when its place is kept, ms, negative                 -1e14 - ms
--   i<id>|...  who that is, for people: of a holder                       token + 4e15
--                                       of a waiter                       ticket + 2e13
--   #<x>       bookkeeping: t last token, q last ticket, n last server time in ms, L longest lease,
--              g end of grace, m mean hold, l limit last asked for        -4e15 - value
--   @<replid>  under which primary the lock was last granted              -9e15
-- A ticket is priority * 1e11 + order of arrival.
local key = KEYS[1]

local function str(number) return string.format('%.0f', number) end -- tostring() would round
local function scores(...) -- several at once, since each call costs more than what it reads
  local found = redis.call('ZMSCORE', key, ...)
  for i = 1, #found do found[i] = tonumber(found[i] or nil) end
  return unpack(found, 1, select('#', ...))
end
local function range(low, high, ...) return redis.call('ZRANGEBYSCORE', key, low, high, ...) end
local function put(...) redis.call('ZADD', key, ...) end -- score, member, ...; numbers keep all their digits
local function count(low, high) return redis.call('ZCOUNT', key, low, high) end
local function noted(value) return value and -4e15 - value end -- bookkeeping to its score, and back
local function each(low, high, act, ...) -- with the rest of each member's name; whether there is any
  local found = range(low, high, ...)
  for _, member in ipairs(found) do act(string.sub(member, 2)) end
  return #found > 0
end
local function drop_info(at) redis.call('ZREMRANGEBYSCORE', key, at, at) end

local time = redis.call('TIME') -- read once: some servers do not freeze it
local us = time[1] * 1e6 + time[2]
local now = math.floor(us / 1000)

local function drop_holder(owner, token)
  if token then drop_info(token + 4e15) end
  redis.call('ZREM', key, 'h' .. owner, 't' .. owner, 's' .. owner, 'w' .. owner)
end

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

local function move(low, high, step)
  local found = range(low, high, 'WITHSCORES')
  for i = 1, #found, 2 do put(found[i + 1] + step, found[i]) end
end

-- A clock that steps back would keep dead holders for as long as the step: move all times with it.
-- Returns whether it did.
local function follow_clock(last)
  local step = now - (last or now)
  if step >= -1000 then
    now = math.max(now, last or now)
    return false
  end
  move(1e12, 9.999e12, step)
  move(-9.999e12, -1e12, -step)
  move(-1.09e14, -1e14, -step)
  local grace = scores('#g')
  if grace then put(grace - step, '#g') end
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

local function live() return count(1e12, 9.999e12) end
local function who(at) return string.match(range(at, at)[1] or '', '|(.*)') or '' end
local function describe(owner)
  local token, slot, expiry = scores('t' .. owner, 's' .. owner, 'h' .. owner)
  return {owner, token, slot, expiry, who(token + 4e15)}
end

-- Tell the first waiters in line to ask again, as many as there are free slots. Being denied leaks nothing.
local function call(waiter) redis.pcall('PUBLISH', key .. ':wake', waiter) end
local function wake(free) return free > 0 and each(1e11, 9.999e11, call, 'LIMIT', 0, free) end

-- The key lives as long as anything in it can matter, and a while longer for its last token.
local function keep_alive(lease_ms, keep_ms)
  local ttl = math.max(10 * lease_ms, 600000, keep_ms)
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, str(ttl)) end
end

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
