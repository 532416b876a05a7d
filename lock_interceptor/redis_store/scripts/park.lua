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

local last, queue, longest, token, used, hot, cold
local function look()
  last, queue, longest, token, used, hot, cold =
    scores('#n', '#q', '#L', 't' .. owner, 'w' .. owner, 'q' .. waiter, 'c' .. waiter)
end
look()
if not last then return 0 end -- there is no such key
if purge(noted(last), queue) then look() end
put(noted(now), '#n')
local ticket = either(hot, cold) or (used and used - 3e13)
if not ticket then
  ticket = tonumber(ARGV[4])
  if ticket > 0 then
    -- forgotten, maybe with all that came after: it must not be given to two
    local arrival, last = ticket % 1e11, noted(queue) or 0
    local taken = count(ticket, ticket) + count(ticket + 1e13, ticket + 1e13) > 0
    if taken then ticket, arrival = ticket - arrival + last + 1, last + 1 end
    queue = noted(math.max(arrival, last))
    put(queue, '#q')
  end
end
drop_holder(owner, token)
if ticket > 0 then
  drop_waiter(waiter, ticket)
  make_cold(waiter, ticket)
  put(-1e14 - (now + keep_ms), 'k' .. waiter, ticket + 2e13, 'i' .. waiter .. '|' .. ARGV[6])
  keep_alive(0, keep_ms)
end
hand_on(limit, noted(longest), queue)
return ticket > 0 and 1 or 0
