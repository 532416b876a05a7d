#!lua flags=no-writes
-- Look at a lock without touching it.
--
-- KEYS[1]  the lock
-- ARGV[1]  how many waiters to list at most
-- Returns {now ms, waiting, holders, waiters}: holders are {owner, token, slot, expiry ms, who}, waiters in
-- order {waiter, 1 present or 0 parked, who}. What has expired is left out.
local limit = tonumber(ARGV[1])

now = math.max(now, noted(scores('#n')) or 0)
local holders = {}
for _, member in ipairs(range(now + 1, 9.999e12)) do
  holders[#holders + 1] = describe(string.sub(member, 2))
end

local line = {}
for _, low in ipairs({1e11, 1e13 + 1e11}) do
  for _, member in ipairs(range(low, low + 8.999e11, 'LIMIT', 0, limit)) do
    local waiter = string.sub(member, 2)
    local kept, present, hot, cold = scores('k' .. waiter, 'p' .. waiter, 'q' .. waiter, 'c' .. waiter)
    if -(kept or 0) - 1e14 > now then
      line[#line + 1] = {either(hot, cold), waiter, -(present or 0) > now and 1 or 0}
    end
  end
end
table.sort(line, function(one, other) return one[1] < other[1] end)
local waiters = {}
for place = 1, math.min(limit, #line) do
  local ticket, waiter, present = unpack(line[place])
  waiters[place] = {waiter, present, who(ticket + 2e13)}
end
return {now, count(-1.09e14, -1e14 - now - 1), holders, waiters}
