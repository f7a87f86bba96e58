-- KEYS: the lock. ARGV: the owner.
-- Whether it is held.
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
    return 1
end
return 0
