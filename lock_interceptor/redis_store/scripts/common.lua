-- The head of every script: what stands in the lock's key, and the helpers to read and change it. After it
-- comes line.lua, with those for who stands in line.
--
-- KEYS[1]  the lock: one sorted set. Scores tell record types apart, so that each is reachable as a range:
--   h<owner>   lease expiry of a holder, ms since 1970                    [1e12, 1e13)
--   t<owner>   its fencing token, about the time of the grant in us       [1e15, 4e15)
--   s<owner>   its slot, 0 .. limit-1                                     [0, 1e6)
--   q<waiter>  ticket of a waiter that is present (hot)                   [1e11, 1e12)
--   c<waiter>  ticket of a waiter that is parked (cold)                   ticket + 1e13
--   w<owner>   ticket that a holder's grant used up                       ticket + 3e13
--   p<waiter>  until when it counts as present, ms, negative: as long     (-1e13, -1e12]
--              as one of its attempts does
--   k<waiter>  until when its place is kept, ms, negative                 -1e14 - ms
--   i<id>|...  who that is, for people: of a holder                       token + 4e15
--                                       of a waiter                       ticket + 2e13
--              a present waiter's begins with i<id>:<owner>,<attempt>=<ms>:... for its present attempts:
--              each is present until so much before p<waiter>, and with that all move when the clock does
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

local function live() return count(1e12, 9.999e12) end
local function who(at) return string.match(range(at, at)[1] or '', '|(.*)') or '' end
local function describe(owner)
  local token, slot, expiry = scores('t' .. owner, 's' .. owner, 'h' .. owner)
  return {owner, token, slot, expiry, who(token + 4e15)}
end

-- The key lives as long as anything in it can matter, and a while longer for its last token.
local function keep_alive(lease_ms, keep_ms)
  local ttl = math.max(10 * lease_ms, 600000, keep_ms)
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, str(ttl)) end
end
