#!lua
-- Take the lock, or stand in line for it; asking again is the same call.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner, single-use       ARGV[2]  waiter         ARGV[3]  limit
-- ARGV[4]  lease, ms               ARGV[5]  priority, 1 (first) to 9
-- ARGV[6]  presence, ms; 0 = do not stand in line, -1 = stand there parked, and get no grant
-- ARGV[7]  keep the place for, ms
-- ARGV[8]  usual lease, ms: this request may ask for less than others who may hold it
-- ARGV[9]  who this is, for people
-- ARGV[10]  which attempt of the waiter's this is, from 1
-- Returns {1, token, slot, ticket used up or 0, replicas}                                    granted
--         {0, rank, ahead, held, mean, expiry, grace, now, holders, ticket or 0, own, own expiry, replicas}
--                                                                                            not granted
-- "Mean" is how long holders take, "expiry" when the next lease ends, each -1 if there is none; these,
-- "grace" and "now" in ms.
-- "Holders" are the three that have held it longest, each {owner, token, slot, expiry ms, who}.
-- "Own" is how many holders are attempts of the same waiter, and "own expiry" when the first lease of theirs
-- ends, in ms, or -1. Only who does not stand in line is told: it would never be done with its own dead attempt.
-- "Replicas" are those connected; -1 when the server forbids INFO, so that a failover goes unnoticed.
local owner, waiter, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease_ms, priority = tonumber(ARGV[4]), tonumber(ARGV[5])
local presence_ms, keep_ms, attempt = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[10])

local info = redis.pcall('INFO', 'replication')
local replid = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
local replicas = replid and tonumber(string.match(info, 'connected_slaves:(%d+)')) or -1
local primary = '@' .. (replid or '')

local last, queue, newest, longest, grace, mean, known, expiry, token, slot, used, hot, cold, present
local function look()
  last, queue, newest, longest, grace, mean, known, expiry, token, slot, used, hot, cold, present = scores(
    '#n', '#q', '#t', '#L', '#g', '#m', primary, 'h' .. owner, 't' .. owner, 's' .. owner, 'w' .. owner,
    'q' .. waiter, 'c' .. waiter, 'p' .. waiter)
end
look()
if purge(noted(last), queue) then look() end
put(noted(now), '#n', noted(limit), '#l') -- the limit is for people
keep_alive(lease_ms, keep_ms) -- before any grant, which a missing right must not leave without an end

-- The same claim again: the answer got lost, or the caller was not sure.
if expiry then
  put(now + lease_ms, 'h' .. owner)
  return {1, token, slot, used and used - 3e13 or 0, replicas}
end

-- Another primary than before may have forgotten grants: let the known holders renew for one lease, and
-- grant nothing new meanwhile.
local held = live()
longest = math.max(noted(longest) or 0, lease_ms, tonumber(ARGV[8]))
grace = math.max((noted(grace) or 0) - now, 0)
if replid and not known then
  local before = range(-9e15, -9e15)[1]
  put(-9e15, primary)
  if before then
    redis.call('ZREM', key, before)
    grace = longest
    put(noted(now + grace), '#g')
  end
end

local ticket = either(hot, cold)
local arrival = (noted(queue) or 0) + 1
local place = ticket or priority * 1e11 + arrival
local rank = queue and count(1e11, place - 1) or 0
local free = limit - held

if grace == 0 and free > rank and presence_ms >= 0 then
  -- the smallest slot that is not taken: the first m with fewer than m+1 slots at or below m
  local low, high = 0, held
  while low < high do
    local middle = math.floor((low + high) / 2)
    if count(0, middle) > middle then low = middle + 1 else high = middle end
  end
  local token = math.max((noted(newest) or 0) + 1, us)
  if ticket then
    step_out(waiter, ticket, others(ticket, present, owner, attempt), ticket)
    put(ticket + 3e13, 'w' .. owner)
  end
  -- #L never falls: a primary to come may not know of the last that was as long
  put(now + lease_ms, 'h' .. owner, token, 't' .. owner, low, 's' .. owner, token + 4e15,
    'i' .. owner .. '|' .. ARGV[9], noted(token), '#t', noted(longest), '#L')
  wake(free - 1)
  return {1, token, low, ticket or 0, replicas}
end

local ends = range(str(now), '9.999e12', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local ahead = rank + count(1e13 + 1e11, 1e13 + place - 1)
if presence_ms ~= 0 then
  local attempts = ticket and others(ticket, present, owner, attempt) or {}
  if presence_ms > 0 then
    attempts[#attempts + 1] = {owner, ARGV[10], now + presence_ms}
    if #attempts > 3 then table.remove(attempts, 1) end
  end
  local presence, record = as_noted(waiter, attempts)
  if ticket then drop_info(ticket + 2e13) end
  if cold then redis.call('ZREM', key, 'c' .. waiter) end
  local kept = -1e14 - (now + keep_ms)
  if #attempts == 0 then
    make_cold(waiter, place)
    put(kept, 'k' .. waiter, place + 2e13, record .. ARGV[9])
  else
    put(place, 'q' .. waiter, presence, 'p' .. waiter, kept, 'k' .. waiter, place + 2e13, record .. ARGV[9])
  end
  if not ticket then put(noted(arrival), '#q') end
end
if grace == 0 then wake(free) end
local holders = {}
for _, member in ipairs(range(1e15, 3.999e15, 'LIMIT', 0, 3)) do
  holders[#holders + 1] = describe(string.sub(member, 2))
end
local own, own_expiry = 0, -1
for _, holder in ipairs(presence_ms == 0 and range(1e12, 9.999e12) or {}) do
  if string.sub(holder, 2, 17) == string.sub(waiter, 1, 16) then -- owners begin with their waiter
    if own == 0 then own_expiry = scores(holder) - now end
    own = own + 1
  end
end
local left = ends and tonumber(ends) - now or -1
local stands = presence_ms ~= 0 and place or 0
return {0, rank, ahead, held, noted(mean) or -1, left, grace, now, holders, stands, own, own_expiry, replicas}
