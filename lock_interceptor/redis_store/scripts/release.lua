#!lua flags=allow-oom
-- Give the lock back, or leave the line; then wake those who are next.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner        ARGV[2]  waiter        ARGV[3]  limit
-- Returns 1 it held the lock, 0 it did not (any more).
local owner, waiter, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

if redis.call('EXISTS', key) == 0 then return 0 end
purge()
local token = score('h' .. owner) and score('t' .. owner)
if token then
  local hold, mean = math.max(now - math.floor(token / 1000), 0), book('m') or 0
  -- slow to rise, quick to fall: who expects too long a wait stays away beside a free slot
  note('m', math.floor(mean + (hold - mean) / (hold < mean and 2 or 8)))
  drop_holder(owner)
else
  drop_waiter(waiter) -- a holder's place is used up: one that is there belongs to its next attempt
end
hand_on(limit)
return token and 1 or 0
