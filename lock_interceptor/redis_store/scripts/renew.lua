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

local last, queue, expiry = scores('#n', '#q', 'h' .. owner)
if not last then return {0, told} end -- there is no such key
if purge(noted(last), queue) then expiry = scores('h' .. owner) end
if not expiry then
  put(noted(now), '#n')
  return {0, told}
end
put(now + lease_ms, 'h' .. owner, noted(now), '#n')
keep_alive(lease_ms, 0)
return {1, told}
