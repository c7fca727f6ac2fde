-- Floating-point numbers in tables, and C arrays by the ffi library.
local ffi = require("ffi")
local size = 300
local a, b, c = ffi.new("double[?]", size * size), ffi.new("double[?]", size * size), {}
for i = 0, size * size - 1 do
    a[i], b[i] = i % 11 - 5, i % 7 - 3
end
local sum = 0
for round = 1, 40 do
    for i = 0, size - 1 do
        for j = 0, size - 1 do
            local value = 0
            for k = 0, size - 1 do
                value = value + a[i * size + k] * b[k * size + j]
            end
            c[i * size + j] = value
        end
    end
    sum = sum + c[round * 101]
end
local x, y = 0.1, 0.2
for _ = 1, 60000000 do
    x, y = 1 - 1.4 * x * x + y, 0.3 * x
end
print(string.format("%.0f %.3f", sum, math.abs(x) < 2 and 1 or 0))
