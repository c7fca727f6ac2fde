-- Tables, closures, strings and a search: queens.lua ROUNDS
local rounds = tonumber(arg[1])

local function queens(n)
  local solutions, columns, up, down = 0, {}, {}, {}
  local function place(row)
    if row > n then
      solutions = solutions + 1
      return
    end
    for column = 1, n do
      if not (columns[column] or up[row + column] or down[row - column]) then
        columns[column], up[row + column], down[row - column] = true, true, true
        place(row + 1)
        columns[column], up[row + column], down[row - column] = false, false, false
      end
    end
  end
  place(1)
  return solutions
end

local Queue = {}
Queue.__index = Queue
function Queue.new() return setmetatable({ first = 1, last = 0 }, Queue) end
function Queue:push(value) self.last = self.last + 1; self[self.last] = value end
function Queue:pop()
  local value = self[self.first]
  self[self.first] = nil
  self.first = self.first + 1
  return value
end

-- Shortest ways of a knight on a board, breadth first.
local function knight(size)
  local distance, queue, total = { [0] = 0 }, Queue.new(), 0
  local jumps = { { 1, 2 }, { 2, 1 }, { -1, 2 }, { -2, 1 }, { 1, -2 }, { 2, -1 }, { -1, -2 }, { -2, -1 } }
  queue:push(0)
  while queue.first <= queue.last do
    local at = queue:pop()
    local x, y = at % size, at // size
    total = total + distance[at]
    for _, jump in ipairs(jumps) do
      local a, b = x + jump[1], y + jump[2]
      if a >= 0 and a < size and b >= 0 and b < size and not distance[b * size + a] then
        distance[b * size + a] = distance[at] + 1
        queue:push(b * size + a)
      end
    end
  end
  return total
end

local function words(count)
  local parts, random = {}, 1
  for i = 1, count do
    random = (random * 1103515245 + 12345) % 2147483648
    parts[i] = string.format("%x", random):reverse():gsub("[aeiou]", string.upper)
  end
  table.sort(parts)
  return #table.concat(parts, ","), parts[count // 2]
end

for round = 1, rounds do
  print(queens(7 + round % 2), knight(60 + round), words(4000))
end
