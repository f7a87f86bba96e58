-- KEYS: who has permits by when they end, the tokens of these, the last token. ARGV: the owner, the ttl in ms, the limit.
-- {1, the token}, or {0, how many ms the first to end has left}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, ended in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
    redis.call('ZREM', KEYS[1], ended)
    redis.call('HDEL', KEYS[2], ended)
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
    return {0, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] - now}
end
local last = tonumber(redis.call('GET', KEYS[3]) or 0)
-- Also higher than what a server gave that lost its data.
local next = math.max(last + 1, time[1] * 1000000 + time[2])
-- From there on numbers are not exact here, and one could be given twice.
if next >= 9007199254740992 then
    return redis.error_reply('ERR the token counter is too high: somebody else has written it')
end
local token = string.format('%.0f', next)
redis.call('SET', KEYS[3], token)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], token)
local ends = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', KEYS[1], ends)
redis.call('PEXPIREAT', KEYS[2], ends)
return {1, token}
