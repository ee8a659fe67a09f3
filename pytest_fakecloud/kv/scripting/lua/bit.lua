-- The bit library: operations on 32-bit integers. The engine computes them in Python, because Lua
-- 5.1 has no bit operators.
local host = ...
local py, check_number = host.py, host.check_number
local select, unpack = select, unpack

-- Returns a function that passes this number of arguments to Python, or all if `wanted` is nil.
local function with_numbers(compute, wanted)
  return function(...)
    local count = select("#", ...)
    local numbers = { check_number(count, 1, (...)) }
    for index = 2, wanted or count do
      numbers[index] = check_number(count, index, (select(index, ...)))
    end
    return compute(unpack(numbers))
  end
end

local function tohex(...)
  local count, value, digits = select("#", ...), ...
  value = check_number(count, 1, value)
  return py.bit_tohex(value, digits == nil and 8 or check_number(count, 2, digits))
end

local bit = { tohex = tohex }
for _, name in ipairs({ "tobit", "bnot", "bswap" }) do
  bit[name] = with_numbers(py["bit_" .. name], 1)
end
for _, name in ipairs({ "lshift", "rshift", "arshift", "rol", "ror" }) do
  bit[name] = with_numbers(py["bit_" .. name], 2)
end
for _, name in ipairs({ "band", "bor", "bxor" }) do bit[name] = with_numbers(py["bit_" .. name]) end
return bit
