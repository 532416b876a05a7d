#!lua flags=no-writes
-- Count who holds and waits, for those who look at many locks: nobody's line is walked.
--
-- KEYS[1]  the lock
-- Returns {now, held, waiting, present, mean, limit, grace, token, foremost}
-- "Waiting" is all in line, "present" those of them in a worker; "mean" is how long holders take and "limit"
-- the one last asked with, each -1 if not known; "grace" is for how long nothing is granted; "token" is that
-- of who has held it longest, or -1; "now", "mean" and "grace" in ms. "Foremost" says who is first in line,
-- for each priority, in a worker and parked.

local last, mean, limit, grace_end = scores('#n', '#m', '#l', '#g')
now = math.max(now, noted(last) or 0)
local held, waiting = count(now + 1, 9.999e12), count(-1.09e14, -1e14 - now - 1)
local token = -1
for _, member in ipairs(held > 0 and range(1e15, 3.999e15, 'LIMIT', 0, 10) or {}) do
  local expiry, its_token = scores('h' .. string.sub(member, 2), member)
  if token < 0 and expiry and expiry > now then token = its_token end
end

local foremost = {}
local function add_first(low)
  for _, member in ipairs(range(low, low + 9.99e10, 'LIMIT', 0, 3)) do
    local waiter = string.sub(member, 2)
    if -(scores('k' .. waiter) or 0) - 1e14 > now then
      foremost[#foremost + 1] = who(ticket_of(waiter) + 2e13)
      return
    end
  end
end
for priority = 1, waiting > 0 and 9 or 0 do
  add_first(priority * 1e11)
  add_first(priority * 1e11 + 1e13)
end

local present, grace = count(-9.999e12, -now - 1), math.max((noted(grace_end) or 0) - now, 0)
return {now, held, waiting, present, noted(mean) or -1, noted(limit) or -1, grace, token, foremost}
