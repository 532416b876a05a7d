#!lua flags=allow-oom
-- Take the lock away from a holder, who learns of it at its next renewal; then wake those who are next.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder's token        ARGV[2]  limit, or 0 if it is not known
-- Returns 1 it is taken away, 0 nobody holds it with this token (any more).
local token, limit = tonumber(ARGV[1]), tonumber(ARGV[2])

local last, queue, longest = scores('#n', '#q', '#L')
if not last then return 0 end -- there is no such key
purge(noted(last), queue)
put(noted(now), '#n')
local owner = string.match(range(token, token)[1] or '', '^t(.*)')
local held = live()
if owner then
  drop_holder(owner, token) -- how long it was held says nothing of how long holders take
  hand_on(limit > 0 and limit or held, noted(longest), queue)
end
return owner and 1 or 0
