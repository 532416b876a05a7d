#!lua flags=allow-oom
-- Step aside but keep the place: from present (hot) to parked (cold), or from holding back into the line.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner        ARGV[2]  waiter        ARGV[3]  limit
-- ARGV[4]  ticket that a grant used up, or 0, for when the store has forgotten the grant
-- ARGV[5]  keep the place for, ms
-- ARGV[6]  who this is, for people
-- Returns 1 the place is kept, 0 there was none.
local owner, waiter, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local keep_ms = tonumber(ARGV[5])

if redis.call('EXISTS', key) == 0 then return 0 end
purge()
local ticket = ticket_of(waiter) or used_ticket(owner)
if not ticket then
  ticket = tonumber(ARGV[4])
  if ticket > 0 then
    -- forgotten, maybe with all that came after: it must not be given to two
    local arrival, last = ticket % 1e11, book('q') or 0
    local taken = count(ticket, ticket) + count(ticket + 1e13, ticket + 1e13) > 0
    if taken then ticket, arrival = ticket - arrival + last + 1, last + 1 end
    note('q', math.max(arrival, last))
  end
end
drop_holder(owner)
if ticket > 0 then
  drop_waiter(waiter)
  make_cold(waiter, ticket)
  put('k' .. waiter, -1e14 - (now + keep_ms))
  put('i' .. waiter .. '|' .. ARGV[6], ticket + 2e13)
  keep_alive(0, keep_ms)
end
hand_on(limit)
return ticket > 0 and 1 or 0
