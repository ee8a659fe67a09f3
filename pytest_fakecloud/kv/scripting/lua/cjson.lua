-- The cjson library, version 2.1.0, which real servers include.
local host = ...

local error, next, pcall, rawset, select, tonumber, type =
  host.error, next, pcall, rawset, select, tonumber, type
local byte, char, find, format, gsub, lower, sub, concat, floor =
  string.byte, string.char, string.find, string.format, string.gsub, string.lower, string.sub,
  table.concat, math.floor
local argument_error, type_error = host.argument_error, host.type_error
local null = host.null

local DEFAULTS = {
  convert = false, ratio = 2, safe = 10, encode_depth = 1000, decode_depth = 1000,
  invalid_encoded = "off", invalid_decoded = true, keep = true, precision = 14,
}

-- Functions of this file raise errors without a position. This function adds the position of the
-- script's call.
local function boundary(ok, result)
  if ok then return result end
  if type(result) == "string" then error(host.plain_message(result), 3) end
  error(result, 0)
end

-- Encoding ---------------------------------------------------------------------------------------

local ESCAPES = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
  ["\r"] = "\\r", ["\t"] = "\\t", ["\127"] = "\\u007f",
}
for code = 0, 31 do
  local this = char(code)
  ESCAPES[this] = ESCAPES[this] or format("\\u%04x", code)
end

local function quote(text)
  host.charge_bytes(#text * 10)
  return '"' .. gsub(text, '[%c"\\/\127]', ESCAPES) .. '"'
end

local function cannot(value, reason)
  error("Cannot serialise " .. type(value) .. ": " .. reason, 0)
end

local function encode_number(config, value)
  if value ~= value or value == 1 / 0 or value == -1 / 0 then
    if config.invalid_encoded == "null" then return "null" end
    if config.invalid_encoded == "off" then cannot(value, "must not be NaN or Inf") end
    return value ~= value and "nan" or value > 0 and "inf" or "-inf"
  end
  return format("%." .. config.precision .. "g", value)
end

-- Returns the length of a table that is an array, or a number of at most 0 for an object.
local function array_length(config, value)
  local most, items = 0, 0
  for key in next, value do
    if type(key) ~= "number" or key < 1 or floor(key) ~= key then return -1 end
    -- The real library keeps the length in a 32-bit integer, which a larger key overflows.
    if key > most then most = key < 2147483648 and key or -2147483648 end
    items = items + 1
  end
  if config.ratio > 0 and most > items * config.ratio and most > config.safe then
    if not config.convert then cannot(value, "excessively sparse array") end
    return -1
  end
  return most
end

local encode_value

local function encode_table(config, value, depth, out)
  if depth > config.encode_depth then
    error("Cannot serialise, excessive nesting (" .. depth .. ")", 0)
  end
  local length = array_length(config, value)
  if length > 0 then
    out[#out + 1] = "["
    for index = 1, length do
      if index > 1 then out[#out + 1] = "," end
      encode_value(config, rawget(value, index), depth, out)
    end
    out[#out + 1] = "]"
    return
  end
  out[#out + 1] = "{"
  local first = true
  for key, item in next, value do
    if not first then out[#out + 1] = "," end
    first = false
    local kind = type(key)
    if kind == "number" then
      out[#out + 1] = '"' .. encode_number(config, key) .. '":'
    elseif kind == "string" then
      out[#out + 1] = quote(key) .. ":"
    else
      cannot(key, "table key must be a number or string")
    end
    encode_value(config, item, depth, out)
  end
  out[#out + 1] = "}"
end

function encode_value(config, value, depth, out)
  local kind = type(value)
  if kind == "string" then
    out[#out + 1] = quote(value)
  elseif kind == "number" then
    out[#out + 1] = encode_number(config, value)
  elseif kind == "boolean" then
    out[#out + 1] = value and "true" or "false"
  elseif kind == "table" then
    encode_table(config, host.real[value] or value, depth + 1, out)
  elseif value == nil or value == null then
    out[#out + 1] = "null"
  else
    cannot(value, "type not supported")
  end
end

local function encode(config, value)
  local out = {}
  encode_value(config, value, 0, out)
  host.check_size(#out * 16)
  return concat(out)
end

-- Decoding ---------------------------------------------------------------------------------------

local SIMPLE = {
  [123] = "T_OBJ_BEGIN", [125] = "T_OBJ_END", [91] = "T_ARR_BEGIN", [93] = "T_ARR_END",
  [58] = "T_COLON", [44] = "T_COMMA", [0] = "T_END",
}
local ESCAPED = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}

-- The state of the decoder: the text, the position of the next token, and the position of the
-- current token.
local text, at, index, config

local function fail_at(position, reason)
  index = position
  return "T_ERROR", reason
end

local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64,
    0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

-- Returns the character of a \uXXXX escape at `place` and the end of the escape, or nil.
local function unicode_escape(place)
  local _, stop, digits = find(text, "^\\u(%x%x%x%x)", place)
  if not stop then return nil end
  local code = tonumber(digits, 16)
  if code >= 0xD800 and code <= 0xDFFF then
    if code >= 0xDC00 then return nil end
    local _, second_stop, second = find(text, "^\\u(%x%x%x%x)", stop + 1)
    local follower = second and tonumber(second, 16)
    if not follower or follower < 0xDC00 or follower > 0xDFFF then return nil end
    code = 0x10000 + (code - 0xD800) * 1024 + (follower - 0xDC00)
    stop = second_stop
  end
  return utf8(code), stop + 1
end

local function next_string()
  local from, parts = at + 1, nil
  while true do
    local stop = find(text, '["\\%z]', from)
    local this = stop and byte(text, stop)
    if this == 34 then
      at = stop + 1
      if not parts then return "T_STRING", sub(text, from, stop - 1) end
      parts[#parts + 1] = sub(text, from, stop - 1)
      return "T_STRING", concat(parts)
    elseif this ~= 92 then
      return fail_at(stop or #text + 1, "unexpected end of string")
    end
    parts = parts or {}
    parts[#parts + 1] = sub(text, from, stop - 1)
    local escape = sub(text, stop + 1, stop + 1)
    if escape == "u" then
      local decoded, after = unicode_escape(stop)
      if not decoded then return fail_at(stop, "invalid unicode escape code") end
      parts[#parts + 1], from = decoded, after
    else
      local decoded = ESCAPED[escape]
      if not decoded then return fail_at(stop, "invalid escape code") end
      parts[#parts + 1], from = decoded, stop + 2
    end
  end
end

-- Returns whether a number is not valid JSON: hexadecimal, leading zeros, infinity or NaN.
local function is_invalid_number()
  if byte(text, at) == 43 then return true end
  local place = byte(text, at) == 45 and at + 1 or at
  local this = byte(text, place) or 0
  if this == 48 then return find(text, "^[xX0-9]", place + 1) ~= nil end
  if this <= 57 then return false end
  local word = lower(sub(text, place, place + 2))
  return word == "inf" or word == "nan"
end

local function next_number()
  local _, stop = find(text, "^[+-]?0[xX]%x+%.?%x*", at)
  if stop then
    local _, exponent = find(text, "^[pP][+-]?%d+", stop + 1)
    stop = exponent or stop
    local value = host.py.hexadecimal(sub(text, at, stop))
    at = stop + 1
    return "T_NUMBER", value
  end
  _, stop = find(text, "^[+-]?%d+%.?%d*", at)
  if not stop then _, stop = find(text, "^[+-]?%.%d+", at) end
  if stop then
    local _, exponent = find(text, "^[eE][+-]?%d+", stop + 1)
    stop = exponent or stop
    local value = tonumber(sub(text, at, stop))
    at = stop + 1
    return "T_NUMBER", value
  end
  local _, sign_stop, sign = find(text, "^([+-]?)", at)
  local word = lower(sub(text, sign_stop + 1, sign_stop + 8))
  if sub(word, 1, 3) == "inf" then
    at = sign_stop + (word == "infinity" and 9 or 4)
    return "T_NUMBER", sign == "-" and -1 / 0 or 1 / 0
  elseif sub(word, 1, 3) == "nan" then
    at = sign_stop + 4
    return "T_NUMBER", -(0 / 0)
  end
  return fail_at(at, "invalid number")
end

local function next_token()
  local start = find(text, "[^ \t\r\n]", at) or #text + 1
  at, index = start, start
  local this = byte(text, start) or 0
  local kind = SIMPLE[this]
  if kind then
    if kind ~= "T_END" then at = start + 1 end
    return kind
  end
  if this == 34 then return next_string() end
  if this == 45 or this >= 48 and this <= 57 then
    if not config.invalid_decoded and is_invalid_number() then
      return fail_at(start, "invalid number")
    end
    return next_number()
  end
  if sub(text, start, start + 3) == "true" then
    at = start + 4
    return "T_BOOLEAN", true
  elseif sub(text, start, start + 4) == "false" then
    at = start + 5
    return "T_BOOLEAN", false
  elseif sub(text, start, start + 3) == "null" then
    at = start + 4
    return "T_NULL"
  elseif config.invalid_decoded and find(text, "^[+iInN]", start) and is_invalid_number() then
    return next_number()
  end
  return fail_at(start, "invalid token")
end

local function expected(what, kind, value)
  local found = kind == "T_ERROR" and value or kind
  error("Expected " .. what .. " but found " .. found .. " at character " .. index, 0)
end

local decode_value

local function descend(depth)
  if depth > config.decode_depth then
    error("Found too many nested data structures (" .. depth .. ") at character " .. at - 1, 0)
  end
end

local function decode_object(depth)
  descend(depth)
  local object = {}
  local kind, value = next_token()
  if kind == "T_OBJ_END" then return object end
  while true do
    if kind ~= "T_STRING" then expected("object key string", kind, value) end
    local key = value
    kind, value = next_token()
    if kind ~= "T_COLON" then expected("colon", kind, value) end
    kind, value = next_token()
    rawset(object, key, decode_value(kind, value, depth))
    kind, value = next_token()
    if kind == "T_OBJ_END" then return object end
    if kind ~= "T_COMMA" then expected("comma or object end", kind, value) end
    kind, value = next_token()
  end
end

local function decode_array(depth)
  descend(depth)
  local array, count = {}, 0
  local kind, value = next_token()
  if kind == "T_ARR_END" then return array end
  while true do
    count = count + 1
    array[count] = decode_value(kind, value, depth)
    kind, value = next_token()
    if kind == "T_ARR_END" then return array end
    if kind ~= "T_COMMA" then expected("comma or array end", kind, value) end
    kind, value = next_token()
  end
end

function decode_value(kind, value, depth)
  if kind == "T_STRING" or kind == "T_NUMBER" or kind == "T_BOOLEAN" then return value end
  if kind == "T_OBJ_BEGIN" then return decode_object(depth + 1) end
  if kind == "T_ARR_BEGIN" then return decode_array(depth + 1) end
  if kind == "T_NULL" then return null end
  expected("value", kind, value)
end

local function decode(settings, source)
  if #source >= 2 and (byte(source, 1) == 0 or byte(source, 2) == 0) then
    error("JSON parser does not support UTF-16 or UTF-32", 0)
  end
  host.charge_bytes(#source)
  text, at, config = source, 1, settings
  local kind, value = next_token()
  local decoded = decode_value(kind, value, 0)
  kind, value = next_token()
  if kind ~= "T_END" then expected("the end", kind, value) end
  return decoded
end

-- The library ------------------------------------------------------------------------------------

local function limit_arguments(count, most)
  if count > most then argument_error(1, most + 1, "found too many arguments") end
end

local function integer_option(count, number, value, present, least, most)
  if value == nil then return present end
  if type(value) ~= "number" then
    local converted = type(value) == "string" and tonumber(value)
    if not converted then type_error(1, number, "number", count, value) end
    value = converted
  end
  value = floor(value)
  if value < least or value > most then
    argument_error(1, number, format("expected integer between %d and %d", least, most))
  end
  return value
end

local function choice_option(number, value, present, choices)
  if value == nil then return present end
  if type(value) == "boolean" then return value and "on" or "off" end
  if not choices[value] then
    argument_error(1, number, "invalid option '" .. tostring(value) .. "'")
  end
  return value
end

local ON_OFF, INVALID = { on = true, off = true }, { on = true, off = true, null = true }
local INT_MAX = 2147483647

local function shown(value)
  if value == "on" then return true end
  if value == "off" then return false end
  return value
end

local new

local function library(settings)
  local lib = { _NAME = "cjson", _VERSION = "2.1.0", null = null }

  function lib.encode(...)
    if select("#", ...) ~= 1 then argument_error(0, 1, "expected 1 argument") end
    return boundary(pcall(encode, settings, (...)))
  end

  function lib.decode(...)
    local count, source = select("#", ...), ...
    if count ~= 1 then argument_error(0, 1, "expected 1 argument") end
    source = host.check_string(count, 1, source)
    return boundary(pcall(decode, settings, source))
  end

  function lib.encode_sparse_array(...)
    local count, convert, ratio, safe = select("#", ...), ...
    limit_arguments(count, 3)
    settings.convert = choice_option(1, convert, settings.convert and "on" or "off", ON_OFF) == "on"
    settings.ratio = integer_option(count, 2, ratio, settings.ratio, 0, INT_MAX)
    settings.safe = integer_option(count, 3, safe, settings.safe, 0, INT_MAX)
    return settings.convert, settings.ratio, settings.safe
  end

  local function integer_setting(name, most)
    return function(...)
      local count = select("#", ...)
      limit_arguments(count, 1)
      settings[name] = integer_option(count, 1, (...), settings[name], 1, most)
      return settings[name]
    end
  end
  lib.encode_max_depth = integer_setting("encode_depth", INT_MAX)
  lib.decode_max_depth = integer_setting("decode_depth", INT_MAX)
  lib.encode_number_precision = integer_setting("precision", 14)

  local function switch_setting(name)
    return function(...)
      limit_arguments(select("#", ...), 1)
      settings[name] = choice_option(1, (...), settings[name] and "on" or "off", ON_OFF) == "on"
      return settings[name]
    end
  end
  lib.encode_keep_buffer = switch_setting("keep")
  lib.decode_invalid_numbers = switch_setting("invalid_decoded")

  function lib.encode_invalid_numbers(...)
    limit_arguments(select("#", ...), 1)
    settings.invalid_encoded = choice_option(1, (...), settings.invalid_encoded, INVALID)
    return shown(settings.invalid_encoded)
  end

  function lib.new() return (new()) end
  return lib
end

-- Returns a library with settings of its own, and the table of these.
function new()
  local settings = {}
  for name, value in next, DEFAULTS do settings[name] = value end
  return library(settings), settings
end

return new
