-- KEYS: who has permits by when they end. ARGV: the owner.
-- Whether the owner has one.
local time = redis.call('TIME')
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if ends and tonumber(ends) > time[1] * 1000 + math.floor(time[2] / 1000) then
    return 1
end
return 0
