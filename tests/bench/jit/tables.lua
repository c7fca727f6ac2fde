-- Tables, strings, closures and metatables.
local state = 7
local function random(limit)
    state = state * 48271 % 2147483647
    return state % limit
end

local Stack = {}
Stack.__index = Stack
function Stack.new()
    return setmetatable({ length = 0 }, Stack)
end
function Stack:push(value)
    self.length = self.length + 1
    self[self.length] = value
end
function Stack:pop()
    local value = self[self.length]
    self[self.length] = nil
    self.length = self.length - 1
    return value
end

local syllables = { "ka", "lo", "mi", "ter", "an", "so", "vel", "dur" }
local counts, total, stack = {}, 0, Stack.new()
for line = 1, 1500000 do
    local word = syllables[random(8) + 1] .. syllables[random(8) + 1] .. random(40)
    counts[word] = (counts[word] or 0) + 1
    if line % 16 == 0 then
        total = total + #word:gsub("[aeiou]", "-"):upper() + (word:find("mi", 1, true) or 0)
    end
    stack:push(line % 3)
    if random(2) == 0 then
        total = total + stack:pop()
    end
end
local names = {}
for name in pairs(counts) do
    names[#names + 1] = name
end
for _ = 1, 40 do
    table.sort(names, function(left, right)
        if counts[left] ~= counts[right] then
            return counts[left] > counts[right]
        end
        return left < right
    end)
end

local function queens(n)
    local found, columns, up, down = 0, {}, {}, {}
    local function place(row)
        if row > n then
            found = found + 1
            return
        end
        for column = 1, n do
            if not (columns[column] or up[row + column] or down[row - column + n]) then
                columns[column], up[row + column], down[row - column + n] = true, true, true
                place(row + 1)
                columns[column], up[row + column], down[row - column + n] = false, false, false
            end
        end
    end
    place(1)
    return found
end
print(#names, names[1], counts[names[1]], total, stack.length, queens(10))
