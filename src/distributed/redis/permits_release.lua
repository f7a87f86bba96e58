-- KEYS: who has permits by when they end, the tokens of these. ARGV: the owner, for how many ms to keep it, for whom then, the
-- channel.
-- Whether the owner had one.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now then
    return 0
end
if tonumber(ARGV[2]) > 0 then
    redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3] .. ARGV[1])
    redis.call('HSET', KEYS[2], ARGV[3] .. ARGV[1], redis.call('HGET', KEYS[2], ARGV[1]))
    local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
    redis.call('PEXPIREAT', KEYS[1], last)
    redis.call('PEXPIREAT', KEYS[2], last)
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
if tonumber(ARGV[2]) == 0 then
    -- How many listen, so that they do not all come. Without the permission they find out by themselves.
    local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[4])
    if listeners[2] ~= 0 then
        redis.pcall('PUBLISH', ARGV[4], listeners[2] or 1)
    end
end
return 1
