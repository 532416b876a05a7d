#!lua flags=allow-oom
-- Let a lease end later. Never creates anything: what is gone is gone.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner        ARGV[2]  lease, ms
-- Returns 1 renewed, 0 not a holder (any more), which is final.
local owner, lease_ms = ARGV[1], tonumber(ARGV[2])

if redis.call('EXISTS', key) == 0 then return 0 end
purge()
if not score('h' .. owner) then return 0 end
put('h' .. owner, now + lease_ms)
keep_alive(lease_ms, 0)
return 1
