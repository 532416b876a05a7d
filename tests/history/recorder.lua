-- Stands before a script in test builds: everything that the script does to the server goes through here, and
-- when it ends the server's log says what that was. The log is append-only, in the order in which
-- the server did things, and outlives FLUSHALL, SIGKILL, and the data that a demoted primary throws away.
--
-- The last of ARGV, which the script does not get to see, is what the client asked for, as JSON.
local redis, audited = (function(real, key)
  local row = {op = '@NAME@', key = key, ask = table.remove(ARGV), did = {}}
  local reads = {ZMSCORE = 1, ZRANGEBYSCORE = 1, ZCOUNT = 1, PTTL = 1}

  local function short(member) -- who somebody is, for people, is of no interest here
    return string.sub(member, 1, 1) == 'i' and string.match(member, '^[^:|]*') .. '|' or member
  end
  local function size() return string.format('%d', real.call('ZCOUNT', key, '-inf', '+inf')) end
  local function content()
    local flat = real.call('ZRANGEBYSCORE', key, '-inf', '+inf', 'WITHSCORES')
    for at = 1, #flat, 2 do flat[at] = short(flat[at]) end
    return flat
  end
  local function did(...) row.did[#row.did + 1] = {...} end
  local function removed(members)
    for _, member in ipairs(members) do
      if real.call('ZMSCORE', key, member)[1] then did('-', short(member)) end
    end
  end

  local info = real.pcall('INFO', 'replication')
  row.replid = type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or nil
  row.before = size()
  -- a server that did not do what is in the key has to tell what that is
  local epoch = real.call('ZRANGEBYSCORE', key, '-9e15', '-9e15')[1]
  if row.before ~= '0' and epoch ~= '@' .. (row.replid or '') then row.all = content() end

  local function run(how, command, ...)
    local name, words = string.upper(command), {...}
    if name == 'TIME' or name == 'INFO' then
      local answer = how(command, ...)
      if name == 'TIME' then row.us = string.format('%.0f', answer[1] * 1e6 + answer[2]) end
      return answer
    end
    if name == 'PUBLISH' then
      if words[1] ~= key .. ':wake' then row.foreign = name .. ' ' .. words[1] end
      did('!', words[2])
      return how(command, ...)
    end
    if words[1] ~= key then row.foreign = name .. ' ' .. tostring(words[1]) end
    if name == 'ZREM' then removed({unpack(words, 2)}) end
    if name == 'ZREMRANGEBYSCORE' then
      removed(real.call('ZRANGEBYSCORE', key, words[2], words[3]))
    end
    local answer = how(command, ...)
    if name == 'ZADD' then
      for at = 3, #words, 2 do did('+', short(words[at]), real.call('ZMSCORE', key, words[at])[1]) end
    elseif name == 'PEXPIRE' then
      did('ttl', words[2])
    elseif not reads[name] and name ~= 'ZREM' and name ~= 'ZREMRANGEBYSCORE' then
      row.unknown = name
    end
    return answer
  end

  local shadow = {
    call = function(...) return run(real.call, ...) end,
    pcall = function(...) return run(real.pcall, ...) end,
  }
  return shadow, function(script)
    local well, answer = pcall(script)
    row.after = size()
    if not well then row.error = tostring(type(answer) == 'table' and answer.err or answer) end
    local text = cjson.encode(row)
    local lines = math.ceil(#text / 900) -- servers cut long ones
    for line = 1, lines do
      local part = string.sub(text, line * 900 - 899, line * 900)
      real.log(real.LOG_WARNING, string.format('lock-audit %d/%d %s', line, lines, part))
    end
    if not well then error(answer, 0) end
    return answer
  end
end)(redis, KEYS[1])
