#!lua
-- Take the lock, or stand in line for it; asking again is the same call.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner, single-use       ARGV[2]  waiter         ARGV[3]  limit
-- ARGV[4]  lease, ms               ARGV[5]  priority, 1 (first) to 9
-- ARGV[6]  presence, ms; 0 = do not stand in line          ARGV[7]  keep the place for, ms
-- ARGV[8]  usual lease, ms: this request may ask for less than others who may hold it
-- ARGV[9]  who this is, for people
-- Returns {1, token, slot, ticket used up or 0, replicas}                                    granted
--         {0, rank, ahead, held, mean, expiry, grace, now, holders, replicas}                not granted
-- "Mean" is how long holders take, "expiry" when the next lease ends, each -1 if there is none; these,
-- "grace" and "now" in ms.
-- "Holders" are the three that have held it longest, each {owner, token, slot, expiry ms, who}.
-- "Replicas" are those connected; -1 when the server forbids INFO, so that a failover goes unnoticed.
local owner, waiter, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease_ms, priority = tonumber(ARGV[4]), tonumber(ARGV[5])
local presence_ms, keep_ms = tonumber(ARGV[6]), tonumber(ARGV[7])

purge()
keep_alive(lease_ms, keep_ms)
note('l', limit) -- for people
local info = redis.pcall('INFO', 'replication')
local replid = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
local replicas = replid and tonumber(string.match(info, 'connected_slaves:(%d+)')) or -1

-- The same claim again: the answer got lost, or the caller was not sure.
if score('h' .. owner) then
  put('h' .. owner, now + lease_ms)
  return {1, score('t' .. owner), score('s' .. owner), used_ticket(owner) or 0, replicas}
end

-- Another primary than before may have forgotten grants: let the known holders renew for one lease, and
-- grant nothing new meanwhile.
local held = live()
local longest = math.max(book('L') or 0, lease_ms, tonumber(ARGV[8]))
local grace = math.max((book('g') or 0) - now, 0)
if replid then
  local epoch = range(-9e15, -9e15)[1]
  if epoch and epoch ~= '@' .. replid then
    redis.call('ZREM', key, epoch)
    grace = longest
    note('g', now + grace)
  end
  if epoch ~= '@' .. replid then put('@' .. replid, -9e15) end
end

local ticket = ticket_of(waiter)
local arrival = (book('q') or 0) + 1
local place = ticket or priority * 1e11 + arrival
local rank = count(1e11, place - 1)
local free = limit - held

if grace == 0 and free > rank then
  -- the smallest slot that is not taken: the first m with fewer than m+1 slots at or below m
  local low, high = 0, held
  while low < high do
    local middle = math.floor((low + high) / 2)
    if count(0, middle) > middle then low = middle + 1 else high = middle end
  end
  local token = math.max((book('t') or 0) + 1, us)
  if ticket then
    drop_waiter(waiter)
    put('w' .. owner, ticket + 3e13)
  end
  -- at once, since each call costs more than what it writes; #L never falls: a primary to come may not know
  -- of the last that was as long
  redis.call('ZADD', key, now + lease_ms, 'h' .. owner, token, 't' .. owner, low, 's' .. owner,
    token + 4e15, 'i' .. owner .. '|' .. ARGV[9], -4e15 - token, '#t', -4e15 - longest, '#L')
  wake(free - 1)
  return {1, token, low, ticket or 0, replicas}
end

local expiry = redis.call('ZRANGEBYSCORE', key, str(now), '9.999e12', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local ahead = rank + count(1e13 + 1e11, 1e13 + place - 1)
if presence_ms > 0 then
  drop_waiter(waiter)
  put('q' .. waiter, place)
  put('p' .. waiter, -(now + presence_ms))
  put('k' .. waiter, -1e14 - (now + keep_ms))
  put('i' .. waiter .. '|' .. ARGV[9], place + 2e13)
  if not ticket then note('q', arrival) end
end
if grace == 0 then wake(free) end
local holders = {}
for _, member in ipairs(range(1e15, 3.999e15, 'LIMIT', 0, 3)) do
  holders[#holders + 1] = describe(string.sub(member, 2))
end
local left = expiry and tonumber(expiry) - now or -1
return {0, rank, ahead, held, book('m') or -1, left, grace, now, holders, replicas}
