-- KEYS: the lock, its token. ARGV: the owner, the ttl in ms.
-- {1, the token}, or {0, how many ms the holder has left}.
if redis.call('GET', KEYS[1]) then
    return {0, redis.call('PTTL', KEYS[1])}
end
local time = redis.call('TIME')
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
-- Also higher than what a server gave that lost its data.
local next = math.max(last + 1, time[1] * 1000000 + time[2])
-- From there on numbers are not exact here, and one could be given twice.
if next >= 9007199254740992 then
    return redis.error_reply('ERR the token counter is too high: somebody else has written it')
end
local token = string.format('%.0f', next)
redis.call('SET', KEYS[2], token)
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. token, 'NX', 'PX', ARGV[2])
return {1, token}
