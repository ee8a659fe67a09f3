-- The struct library, which packs and unpacks C structures, as real servers include it.
local host = ...

local error, select, unpack = host.error, select, unpack
local find, rep, sub, concat = string.find, string.rep, string.sub, table.concat
local argument_error, check_integer, check_number, check_string, py =
  host.argument_error, host.check_integer, host.check_number, host.check_string, host.py

local SIZES = { b = 1, B = 1, h = 2, H = 2, l = 8, L = 8, T = 8, f = 4, d = 8, x = 1 }
local LARGEST = 32 -- maximum number of bytes of an integer

local function number_after(format, place, default)
  local _, stop, digits = find(format, "^(%d+)", place)
  if not stop then return default, place end
  if #digits > 9 then error("integral size overflow", 4) end
  return digits + 0, stop + 1
end

-- Reads the format option at `place`. Returns the option, its size and the position after it.
local function option(format, place)
  local this = sub(format, place, place)
  place = place + 1
  local size = SIZES[this]
  if size then return this, size, place end
  if this == "c" then
    size, place = number_after(format, place, 1)
    return this, size, place
  elseif this == "i" or this == "I" then
    size, place = number_after(format, place, 4)
    if size > LARGEST then
      error("integral size " .. size .. " is larger than limit of " .. LARGEST, 3)
    end
    return this, size, place
  end
  return this, 0, place
end

local function is_power(value)
  while value > 1 and value % 2 == 0 do value = value / 2 end
  return value == 1
end

-- Handles the options for byte order and alignment. Any other character is an invalid option.
local function control(state, this, format, place)
  if this == ">" then
    state.little = false
  elseif this == "<" then
    state.little = true
  elseif this == "!" then
    local align
    align, place = number_after(format, place, 8)
    if not is_power(align) then error("alignment " .. align .. " is not a power of 2", 3) end
    state.align = align
  elseif this ~= " " then
    argument_error(1, 1, "invalid format option '" .. this .. "'")
  end
  return place
end

local function padding(state, this, size, total)
  if size == 0 or this == "c" or state.align == 1 then return 0 end
  local align = size < state.align and size or state.align
  if align <= 1 then return 0 end
  return (align - total % align) % align
end

local function start() return { little = true, align = 1 } end

local lib = {}

function lib.pack(...)
  local count, format = select("#", ...), ...
  format = check_string(count, 1, format)
  local state, out, total, argument, place = start(), {}, 0, 2, 1
  local function put(piece)
    out[#out + 1] = piece
    total = total + #piece
  end
  while place <= #format do
    local this, size
    this, size, place = option(format, place)
    put(rep("\0", padding(state, this, size, total)))
    local value
    if argument <= count then value = (select(argument, ...)) end
    if argument == count + 1 then count = argument end -- a missing argument is read as nil
    if this == "x" then
      put("\0")
    elseif this == "f" or this == "d" then
      put(py.pack_real(check_number(count, argument, value), this, state.little))
      argument = argument + 1
    elseif this == "c" or this == "s" then
      value = check_string(count, argument, value)
      if size == 0 and this == "c" then size = #value end
      if this == "s" then size = #value end
      if #value < size then argument_error(0, argument + 1, "string too short") end
      put(sub(value, 1, size))
      if this == "s" then put("\0") end
      argument = argument + 1
    elseif SIZES[this] or this == "i" or this == "I" then
      value = check_number(count, argument, value)
      put(py.pack_struct(value, size, state.little))
      argument = argument + 1
    else
      place = control(state, this, format, place)
    end
  end
  return concat(out)
end

function lib.unpack(...)
  local count, format, data, position = select("#", ...), ...
  format, data = check_string(count, 1, format), check_string(count, 2, data)
  position = position == nil and 1 or check_integer(count, 3, position)
  if position == 0 then argument_error(0, 3, "offset must be 1 or greater") end
  if position < 0 then argument_error(0, 2, "data string too short") end
  position = position - 1
  local state, found, length, place = start(), {}, 0, 1
  local function keep(value)
    length = length + 1
    found[length] = value
  end
  while place <= #format do
    local this, size
    this, size, place = option(format, place)
    position = position + padding(state, this, size, position)
    if size > #data - position then argument_error(0, 2, "data string too short") end
    if length > 4000 then error("too many results to unpack", 2) end
    if this == "x" then -- skip a byte
    elseif this == "f" or this == "d" then
      keep(py.unpack_real(sub(data, position + 1, position + size), this, state.little))
    elseif this == "c" then
      if size == 0 then
        local previous = tonumber(found[length])
        if not previous then error("format 'c0' needs a previous size", 2) end
        size = host.to_integer(previous)
        length = length - 1
        if size < 0 or size > #data - position then
          argument_error(0, 2, "data string too short")
        end
      end
      keep(sub(data, position + 1, position + size))
    elseif this == "s" then
      local stop = find(data, "\0", position + 1, true)
      if not stop then error("unfinished string in data", 2) end
      size = stop - position
      keep(sub(data, position + 1, stop - 1))
    elseif SIZES[this] or this == "i" or this == "I" then
      local is_signed = find(this, "^[bhli]") ~= nil
      keep(py.unpack_struct(sub(data, position + 1, position + size), state.little, is_signed))
    else
      place = control(state, this, format, place)
    end
    position = position + size
  end
  keep(position + 1)
  return unpack(found, 1, length)
end

function lib.size(...)
  local count, format = select("#", ...), ...
  format = check_string(count, 1, format)
  local state, total, place = start(), 0, 1
  while place <= #format do
    local this, size
    this, size, place = option(format, place)
    total = total + padding(state, this, size, total)
    if this == "s" or this == "c" and size == 0 then
      local shown = this == "s" and "s" or "c0"
      argument_error(0, 1, "option '" .. shown .. "' has no fixed size")
    elseif not find(this, "%w") then
      place = control(state, this, format, place)
    end
    total = total + size
  end
  return total
end

return lib
