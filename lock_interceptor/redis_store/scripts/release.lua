#!lua flags=allow-oom
-- Give the lock back, or leave the line; then wake those who are next.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner        ARGV[2]  waiter        ARGV[3]  limit
-- ARGV[4]  which attempt of the waiter's this is, from 1
-- Returns 1 it held the lock, 0 it did not (any more).
local owner, waiter, limit, attempt = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local last, queue, mean, longest, expiry, token, hot, cold, present
local function look()
  last, queue, mean, longest, expiry, token, hot, cold, present =
    scores('#n', '#q', '#m', '#L', 'h' .. owner, 't' .. owner, 'q' .. waiter, 'c' .. waiter, 'p' .. waiter)
end
look()
if not last then return 0 end -- there is no such key
if purge(noted(last), queue) then look() end
if expiry then
  local hold = math.max(now - math.floor(token / 1000), 0)
  mean = noted(mean) or 0
  -- slow to rise, quick to fall: who expects too long a wait stays away beside a free slot
  mean = math.floor(mean + (hold - mean) / (hold < mean and 2 or 8))
  put(noted(mean), '#m', noted(now), '#n')
  drop_holder(owner, token)
else
  put(noted(now), '#n')
  local place = either(hot, cold) -- of a holder it would be the place of its next attempt
  if place then step_out(waiter, place, others(place, present, owner, attempt), place) end
end
hand_on(limit, noted(longest), queue)
return expiry and 1 or 0
