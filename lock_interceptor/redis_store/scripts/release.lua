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
  local hold, mean = math.max(now - math.floor(token / 1000), 0), book('m')
  note('m', mean and math.floor(mean + (hold - mean) / 8) or hold)
  drop_holder(owner)
end
drop_waiter(waiter)
note('n', now)
local held = live()
wake(limit - held)
if held == 0 and #range(-1.09e14, -1e14, 'LIMIT', 0, 1) == 0 then
  -- idle: stay for as long as a clock may step back, so that tokens go on rising
  redis.call('PEXPIRE', key, str(math.max(2 * (book('L') or 0), 60000)))
end
return token and 1 or 0
