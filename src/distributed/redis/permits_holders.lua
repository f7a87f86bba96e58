-- KEYS: who has permits by when they end, the tokens of these.
-- For each who has one {the owner and the token, how many ms are left}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holders = {}
local ends = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES')
for i = 1, #ends, 2 do
    holders[#holders + 1] = {ends[i] .. ' ' .. (redis.call('HGET', KEYS[2], ends[i]) or ''), ends[i + 1] - now}
end
return holders
