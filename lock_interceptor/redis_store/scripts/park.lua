#!lua flags=allow-oom
-- Step aside but keep the place: from present (hot) to parked (cold), or from holding back into the line.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner        ARGV[2]  waiter        ARGV[3]  limit
-- ARGV[4]  ticket that a grant used up, or 0, for when the store has forgotten the grant
-- ARGV[5]  keep the place for, ms
-- ARGV[6]  who this is, for people
-- ARGV[7]  which attempt of the waiter's this is, from 1
-- If another attempt is present, the waiter stays present for that one. It gets the lower of two tickets.
-- Returns 1 the place is kept, 0 there was none.
local owner, waiter, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local keep_ms, attempt = tonumber(ARGV[5]), tonumber(ARGV[7])

local last, queue, longest, token, used, hot, cold, present
local function look()
  last, queue, longest, token, used, hot, cold, present =
    scores('#n', '#q', '#L', 't' .. owner, 'w' .. owner, 'q' .. waiter, 'c' .. waiter, 'p' .. waiter)
end
look()
if not last then return 0 end -- there is no such key
if purge(noted(last), queue) then look() end
put(noted(now), '#n')
local place, ticket = either(hot, cold), used and used - 3e13 or tonumber(ARGV[4])
if not used and ticket > 0 and ticket ~= place then
  -- forgotten, maybe with all that came after: it must not be given to two
  local arrival, last = ticket % 1e11, noted(queue) or 0
  if count(ticket, ticket) + count(ticket + 1e13, ticket + 1e13) > 0 then
    if place then ticket, arrival = place, 0 else ticket, arrival = ticket - arrival + last + 1, last + 1 end
  end
  queue = noted(math.max(arrival, last))
  put(queue, '#q')
end
if place and (ticket == 0 or place < ticket) then ticket = place end
drop_holder(owner, token)
if ticket > 0 and not step_out(waiter, place, place and others(place, present, owner, attempt) or {}, ticket) then
  make_cold(waiter, ticket)
  put(-1e14 - (now + keep_ms), 'k' .. waiter, ticket + 2e13, 'i' .. waiter .. '|' .. ARGV[6])
  keep_alive(0, keep_ms)
end
hand_on(limit, noted(longest), queue)
return ticket > 0 and 1 or 0
