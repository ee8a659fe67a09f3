-- The bit library: operations on 32-bit integers. The engine computes them in Python, because Lua
-- 5.1 has no bit operators.
local host = ...
local py, check_number = host.py, host.check_number
local select, unpack = select, unpack

local function unary(compute)
  return function(...)
    return compute(check_number(select("#", ...), 1, (...)))
  end
end

local function shift(compute)
  return function(...)
    local count, value, places = select("#", ...), ...
    return compute(check_number(count, 1, value), check_number(count, 2, places))
  end
end

local function fold(compute)
  return function(...)
    local count = select("#", ...)
    local numbers = { check_number(count, 1, (...)) }
    for index = 2, count do
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

return {
  tobit = unary(py.bit_tobit), bnot = unary(py.bit_bnot), bswap = unary(py.bit_bswap),
  lshift = shift(py.bit_lshift), rshift = shift(py.bit_rshift), arshift = shift(py.bit_arshift),
  rol = shift(py.bit_rol), ror = shift(py.bit_ror),
  band = fold(py.bit_band), bor = fold(py.bit_bor), bxor = fold(py.bit_bxor), tohex = tohex,
}
