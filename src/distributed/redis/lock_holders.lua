-- KEYS: the lock.
-- {the owner and the token, how many ms are left}, if it is held.
local value = redis.call('GET', KEYS[1])
if value then
    return {{value, redis.call('PTTL', KEYS[1])}}
end
return {}
