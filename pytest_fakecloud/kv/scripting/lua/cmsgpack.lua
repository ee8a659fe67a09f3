-- The cmsgpack library, version 0.4.0, which real servers include.
local host = ...

local error, next, pcall, rawget, rawset, select, type =
  host.error, next, pcall, rawget, rawset, select, type
local byte, char, concat, floor, sub =
  string.byte, string.char, table.concat, math.floor, string.sub
local argument_error, check_integer, check_string, py =
  host.argument_error, host.check_integer, host.check_string, host.py
local unpack = unpack

local MOST_NESTING = 16

local function boundary(ok, ...)
  host.hurry()
  if ok then return ... end
  local message = ...
  if type(message) == "string" then error(host.plain_message(message), 3) end
  error(message, 0)
end

-- Returns an integer as `width` bytes, most significant byte first; negative numbers in two's
-- complement.
local function bytes(value, width)
  if width == 8 then return py.pack_integer(value) end
  if value < 0 then value = value + 256 ^ width end
  local parts = {}
  for place = width, 1, -1 do
    parts[place] = value % 256
    value = floor(value / 256)
  end
  return char(unpack(parts))
end

-- Packing ----------------------------------------------------------------------------------------

local function pack_number(value)
  if floor(value) ~= value or value >= 2 ^ 63 or value < -2 ^ 63 then
    return py.pack_float(value)
  end
  if value >= 0 then
    if value <= 127 then return char(value) end
    if value <= 0xff then return char(0xcc, value) end
    if value <= 0xffff then return "\205" .. bytes(value, 2) end
    if value <= 0xffffffff then return "\206" .. bytes(value, 4) end
    return "\207" .. bytes(value, 8)
  end
  if value >= -32 then return char(256 + value) end
  if value >= -128 then return char(0xd0, 256 + value) end
  if value >= -32768 then return "\209" .. bytes(value, 2) end
  if value >= -2147483648 then return "\210" .. bytes(value, 4) end
  return "\211" .. bytes(value, 8)
end

local function pack_header(length, fix, most, short, long)
  if length <= most then return char(fix + length) end
  if length <= 0xffff then return char(short) .. bytes(length, 2) end
  return char(long) .. bytes(length, 4)
end

local size -- total number of bytes of the strings packed so far

local function string_header(length)
  if length < 32 then return char(0xa0 + length) end
  if length <= 0xff then return char(0xd9, length) end
  if length <= 0xffff then return "\218" .. bytes(length, 2) end
  return "\219" .. bytes(length, 4)
end

local function is_array(value)
  local count, most = 0, 0
  for key in next, value do
    if type(key) ~= "number" or key <= 0 or floor(key) ~= key then return false end
    if key > most then most = key end
    count = count + 1
  end
  return count == most
end

local function pack_value(value, level, out)
  local kind = type(value)
  if kind == "table" and level < MOST_NESTING then
    value = host.real[value] or value
    if is_array(value) then
      local length = #value
      out[#out + 1] = pack_header(length, 0x90, 15, 0xdc, 0xdd)
      for index = 1, length do pack_value(rawget(value, index), level + 1, out) end
      return
    end
    local place, length = #out + 1, 0
    out[place] = ""
    for key, item in next, value do
      length = length + 1
      pack_value(key, level + 1, out)
      pack_value(item, level + 1, out)
    end
    out[place] = pack_header(length, 0x80, 15, 0xde, 0xdf)
  elseif kind == "string" then
    -- Add the header and the string separately. Nothing is copied until the total size is known.
    out[#out + 1] = string_header(#value)
    out[#out + 1] = value
    size = size + #value
  elseif kind == "number" then
    out[#out + 1] = pack_number(value)
  elseif kind == "boolean" then
    out[#out + 1] = value and "\195" or "\194"
  else
    out[#out + 1] = "\192"
  end
end

local function pack_all(count, ...)
  local out = {}
  size = 0
  for index = 1, count do pack_value((select(index, ...)), 0, out) end
  host.check_size(#out * 16 + size)
  return concat(out)
end

-- Unpacking --------------------------------------------------------------------------------------

local MISSING, BAD = "Missing bytes in input.", "Bad data format in input."

local data, at

local function need(count)
  if at + count - 1 > #data then error(MISSING, 0) end
end

local function unsigned(width)
  need(width)
  local value = 0
  for place = at, at + width - 1 do value = value * 256 + byte(data, place) end
  at = at + width
  return value
end

local function signed(width)
  if width == 8 then
    need(8)
    at = at + 8
    return py.unpack_integer(sub(data, at - 8, at - 1))
  end
  local value = unsigned(width)
  if value >= 256 ^ width / 2 then value = value - 256 ^ width end
  return value
end

local function raw(length)
  need(length)
  at = at + length
  return sub(data, at - length, at - 1)
end

local unpack_value

local function array(length)
  local found = {}
  for index = 1, length do found[index] = unpack_value() end
  return found
end

local function map(length)
  local found = {}
  for _ = 1, length do
    local key = unpack_value()
    local value = unpack_value()
    if key == nil then error({ err = "ERR table index is nil" }, 0) end
    if key ~= key then error({ err = "ERR table index is NaN" }, 0) end
    rawset(found, key, value)
  end
  return found
end

local UNPACK = {
  [0xc0] = function() return nil end,
  [0xc2] = function() return false end,
  [0xc3] = function() return true end,
  [0xca] = function() return py.unpack_float(raw(4)) end,
  [0xcb] = function() return py.unpack_float(raw(8)) end,
  [0xcc] = function() return unsigned(1) end,
  [0xcd] = function() return unsigned(2) end,
  [0xce] = function() return unsigned(4) end,
  [0xcf] = function() return signed(8) end, -- signed, as in the C library
  [0xd0] = function() return signed(1) end,
  [0xd1] = function() return signed(2) end,
  [0xd2] = function() return signed(4) end,
  [0xd3] = function() return signed(8) end,
  [0xd9] = function() return raw(unsigned(1)) end,
  [0xda] = function() return raw(unsigned(2)) end,
  [0xdb] = function() return raw(unsigned(4)) end,
  [0xdc] = function() return array(unsigned(2)) end,
  [0xdd] = function() return array(unsigned(4)) end,
  [0xde] = function() return map(unsigned(2)) end,
  [0xdf] = function() return map(unsigned(4)) end,
}

function unpack_value()
  local this = unsigned(1)
  if this < 0x80 then return this end
  if this >= 0xe0 then return this - 256 end
  local read = UNPACK[this]
  if read then return read() end
  if this >= 0xa0 and this <= 0xbf then return raw(this - 0xa0) end
  if this >= 0x90 and this <= 0x9f then return array(this - 0x90) end
  if this >= 0x80 and this <= 0x8f then return map(this - 0x80) end
  error(BAD, 0)
end

local function unpack_all(text, limit, offset)
  if offset < 0 or limit < 0 then
    error("Invalid request to unpack with offset of " .. offset .. " and limit of "
      .. #text .. ".", 0)
  end
  if offset > #text then
    error("Start offset " .. offset .. " greater than input length " .. #text .. ".", 0)
  end
  local everything = limit == 0
  if everything then limit = 1 / 0 end
  data, at = text, offset + 1
  local found, count = {}, 0
  while at <= #data and count < limit do
    count = count + 1
    found[count] = unpack_value()
    if count > 4000 then
      error("too many return values for unpack; use unpack_one or unpack_limit instead.", 0)
    end
  end
  if everything then return unpack(found, 1, count) end
  return at > #data and -1 or at - 1, unpack(found, 1, count)
end

local lib = {
  _NAME = "cmsgpack", _VERSION = "lua-cmsgpack 0.4.0",
  _COPYRIGHT = "Copyright (C) 2012, Salvatore Sanfilippo",
  _DESCRIPTION = "MessagePack C implementation for Lua",
}

function lib.pack(...)
  local count = select("#", ...)
  if count == 0 then argument_error(0, 0, "MessagePack pack needs input.") end
  return boundary(pcall(host.unhurriedly, pack_all, count, ...))
end

function lib.unpack(...)
  local count = select("#", ...)
  return boundary(pcall(host.unhurriedly, unpack_all, check_string(count, 1, (...)), 0, 0))
end

function lib.unpack_one(...)
  local count, text, offset = select("#", ...), ...
  offset = offset == nil and 0 or check_integer(count, 2, offset)
  return boundary(pcall(host.unhurriedly, unpack_all, check_string(count, 1, text), 1, offset))
end

function lib.unpack_limit(...)
  local count, text, limit, offset = select("#", ...), ...
  limit = check_integer(count, 2, limit)
  offset = offset == nil and 0 or check_integer(count, 3, offset)
  return boundary(pcall(host.unhurriedly, unpack_all, check_string(count, 1, text), limit, offset))
end

return lib
