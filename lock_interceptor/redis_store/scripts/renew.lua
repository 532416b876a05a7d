#!lua flags=allow-oom
-- Let a lease end later. Never creates anything: what is gone is gone.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner        ARGV[2]  lease, ms
-- Returns {1, server's time}   renewed
--         {0, server's time}   not a holder (any more), which is final
-- The time in ms is what the clock says, so that who keeps asking can see it step.
local owner, lease_ms = ARGV[1], tonumber(ARGV[2])
local told = now

if redis.call('EXISTS', key) == 0 then return {0, told} end
purge()
if not score('h' .. owner) then return {0, told} end
put('h' .. owner, now + lease_ms)
keep_alive(lease_ms, 0)
return {1, told}
