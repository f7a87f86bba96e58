-- KEYS: the lock. ARGV: the owner, for how many ms to keep it, for whom then, the channel.
-- Whether it was held.
local value = redis.call('GET', KEYS[1])
if not value or string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then
    return 0
end
if tonumber(ARGV[2]) > 0 then
    redis.call('SET', KEYS[1], ARGV[3] .. string.sub(value, #ARGV[1] + 1), 'PX', ARGV[2])
    return 1
end
redis.call('DEL', KEYS[1])
-- How many listen, so that they do not all come. Without the permission they find out by themselves.
local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[4])
if listeners[2] ~= 0 then
    redis.pcall('PUBLISH', ARGV[4], listeners[2] or 1)
end
return 1
