-- KEYS: the lock. ARGV: the owner, the ttl in ms.
-- Whether it is held.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
