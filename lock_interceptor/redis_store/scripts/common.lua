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
local function score(member) return tonumber(redis.call('ZSCORE', key, member) or nil) end
local function range(low, high, ...) return redis.call('ZRANGEBYSCORE', key, low, high, ...) end
local function put(member, value) redis.call('ZADD', key, value, member) end -- numbers keep all their digits
local function count(low, high) return redis.call('ZCOUNT', key, low, high) end
local function book(name)
  local value = score('#' .. name)
  return value and -4e15 - value
end
local function note(name, value) put('#' .. name, -4e15 - value) end
local function drop_info(at) redis.call('ZREMRANGEBYSCORE', key, at, at) end

local time = redis.call('TIME') -- read once: some servers do not freeze it
local us = time[1] * 1e6 + time[2]
local now = math.floor(us / 1000)

local function drop_holder(owner)
  local token = score('t' .. owner)
  if token then drop_info(token + 4e15) end
  redis.call('ZREM', key, 'h' .. owner, 't' .. owner, 's' .. owner, 'w' .. owner)
end

local function used_ticket(owner)
  local used = score('w' .. owner)
  return used and used - 3e13
end

local function ticket_of(waiter)
  local cold = score('c' .. waiter)
  return score('q' .. waiter) or (cold and cold - 1e13)
end

local function drop_waiter(waiter)
  local ticket = ticket_of(waiter)
  if ticket then drop_info(ticket + 2e13) end
  redis.call('ZREM', key, 'q' .. waiter, 'c' .. waiter, 'p' .. waiter, 'k' .. waiter)
end

local function make_cold(waiter, ticket)
  redis.call('ZREM', key, 'q' .. waiter, 'p' .. waiter)
  put('c' .. waiter, ticket + 1e13)
end

-- A clock that steps back would keep dead holders for as long as the step: move all times with it.
local function follow_clock()
  local last = book('n')
  if not last or now >= last then return end
  if now < last - 1000 then
    local step = now - last
    for _, member in ipairs(range(1e12, 9.999e12)) do put(member, score(member) + step) end
    for _, member in ipairs(range(-9.999e12, -1e12)) do put(member, score(member) - step) end
    for _, member in ipairs(range(-1.09e14, -1e14)) do put(member, score(member) - step) end
    local grace = book('g')
    if grace then note('g', grace + step) end
  else
    now = last
  end
end

-- Forget holders and places whose time is over; park waiters that stopped asking. Creates the key.
local function purge()
  follow_clock()
  note('n', now) -- every time, or a step back would be followed twice
  for _, member in ipairs(range(1e12, now)) do drop_holder(string.sub(member, 2)) end
  for _, member in ipairs(range(-now, -1e12)) do
    local waiter = string.sub(member, 2)
    make_cold(waiter, ticket_of(waiter))
  end
  for _, member in ipairs(range(-1e14 - now, -1.01e14)) do drop_waiter(string.sub(member, 2)) end
end

local function live() return count(1e12, 9.999e12) end
local function who(at) return string.match(range(at, at)[1] or '', '|(.*)') or '' end
local function describe(owner)
  local token = score('t' .. owner)
  return {owner, token, score('s' .. owner), score('h' .. owner), who(token + 4e15)}
end

-- Tell the first waiters in line to ask again, as many as there are free slots.
local function wake(free)
  if free <= 0 then return end
  for _, member in ipairs(range(1e11, 9.999e11, 'LIMIT', 0, free)) do
    redis.pcall('PUBLISH', key .. ':wake', string.sub(member, 2)) -- pcall: a missing right must not leak
  end
end

-- The key lives as long as anything in it can matter, and a while longer for its last token.
local function keep_alive(lease_ms, keep_ms)
  local ttl = math.max(10 * lease_ms, 600000, keep_ms)
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, str(ttl)) end
end

-- After something was given back: wake who is next, or let the idle key go. It stays for as long as a clock
-- may step back, so that tokens go on rising.
local function hand_on(limit)
  local held = live()
  wake(limit - held)
  if held == 0 and #range(-1.09e14, -1e14, 'LIMIT', 0, 1) == 0 then
    redis.call('PEXPIRE', key, str(math.max(2 * (book('L') or 0), 60000)))
  end
end
