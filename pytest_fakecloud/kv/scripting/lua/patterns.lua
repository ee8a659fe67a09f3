-- string.find, match, gmatch and gsub in bounded time.
--
-- Lua's own matcher, which is written in C and cannot be interrupted, is used where its worst case
-- is small. Otherwise the matcher below is used, whose instructions are counted like those of a
-- script. The C matcher takes 3 s to search 200 letters for 'a-a-a-b', 32 s to search 400 letters,
-- and 87 s to search 200 letters for 'a-a-a-a-b'. Meanwhile it holds Python's interpreter lock, so
-- no other thread, signal handler or timeout can run.
local host = ...

local error, pcall, select, setmetatable, tostring, type, unpack =
  host.error, pcall, select, setmetatable, tostring, type, unpack
local raw_find, raw_match, raw_gmatch, raw_gsub =
  string.find, string.match, string.gmatch, string.gsub
local byte, char, sub, concat = string.byte, string.char, string.sub, table.concat
local check_string, check_integer = host.check_string, host.check_integer
local argument_error, charge = host.argument_error, host.charge

-- Maximum number of steps of the C matcher, which take a fraction of a second.
local AFFORDABLE = 5e7
-- Number of steps above which the limits are checked before the C matcher runs.
local NOTICEABLE = 2e5
-- Maximum number of items in a pattern; each may take a level of the C matcher's stack.
local LONGEST = 200

-- Parsing ----------------------------------------------------------------------------------------

local SINGLE, STAR, PLUS, LAZY, MAYBE, OPEN, POSITION, CLOSE, BACK, BALANCE, FRONTIER, FINISH, FAIL =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
local WITHOUT_WIDTH = { [OPEN] = true, [POSITION] = true, [CLOSE] = true }
local SUFFIX = { ["*"] = STAR, ["+"] = PLUS, ["-"] = LAZY, ["?"] = MAYBE }

-- Returns the end (exclusive) of the character class that begins at `at`.
local function class_end(pattern, at)
  local first = sub(pattern, at, at)
  at = at + 1
  if first == "%" then
    if at > #pattern then error("malformed pattern (ends with '%')", 0) end
    return at + 1
  elseif first == "[" then
    if sub(pattern, at, at) == "^" then at = at + 1 end
    repeat
      if at > #pattern then error("malformed pattern (missing ']')", 0) end
      local this = sub(pattern, at, at)
      at = at + 1
      if this == "%" and at <= #pattern then at = at + 1 end
    until sub(pattern, at, at) == "]"
    return at + 1
  end
  return at
end

-- Returns the set of bytes that a class matches. Lua's own matcher is used, so that both agree.
local function members(text)
  local set = {}
  local first = byte(text)
  if #text == 1 and text ~= "." then
    set[first] = true
    return set
  end
  if text == "^" then text = "%^" end
  for code = 0, 255 do
    if raw_find(char(code), "^" .. text) then set[code] = true end
  end
  return set
end

local lazily = { __index = function(item, key)
  if key ~= "set" then return nil end
  local set = members(item.text)
  item.set = set
  return set
end }

-- Returns the item that begins at `at`, and the position after it. Raises an error if it is malformed.
local function parse_item(pattern, at, state)
  local this = sub(pattern, at, at)
  local after = sub(pattern, at + 1, at + 1)
  if this == "(" then
    if state.open + state.closed >= 32 then error("too many captures", 0) end
    if after == ")" then
      state.closed = state.closed + 1
      return { op = POSITION }, at + 2
    end
    state.open = state.open + 1
    return { op = OPEN }, at + 1
  elseif this == ")" then
    if state.open == 0 then error("invalid pattern capture", 0) end
    state.open, state.closed = state.open - 1, state.closed + 1
    return { op = CLOSE }, at + 1
  elseif this == "%" and after == "b" then
    if at + 3 > #pattern then error("unbalanced pattern", 0) end
    state.wild = state.wild + 1
    return { op = BALANCE, byte(pattern, at + 2, at + 3) }, at + 4
  elseif this == "%" and after == "f" then
    at = at + 2
    if sub(pattern, at, at) ~= "[" then error("missing '[' after '%f' in pattern", 0) end
    local stop = class_end(pattern, at)
    return setmetatable({ op = FRONTIER, text = sub(pattern, at, stop - 1) }, lazily), stop
  elseif this == "%" and raw_find(after, "^%d") then
    state.may_fail = true
    state.wild = state.wild + 1
    return { op = BACK, index = byte(after) - 48 }, at + 2
  elseif this == "$" and at == #pattern then
    return { op = FINISH }, at + 1
  end
  local stop = class_end(pattern, at)
  local op = SUFFIX[sub(pattern, stop, stop)]
  local item = setmetatable({ op = op or SINGLE, text = sub(pattern, at, stop - 1) }, lazily)
  if not op then return item, stop end
  state.wild = state.wild + 1
  return item, stop + 1
end

local function parse(pattern, anchored)
  local nul = raw_find(pattern, "%z")
  if nul then pattern = sub(pattern, 1, nul - 1) end -- like the C matcher
  local items = {}
  local state = { open = 0, closed = 0, wild = 0, may_fail = false }
  local at = 1
  local anchor = anchored and sub(pattern, 1, 1) == "^"
  if anchor then at = 2 end
  while at <= #pattern do
    local ok, item, stop = pcall(parse_item, pattern, at, state)
    if not ok then
      -- Like the C matcher, report a malformed item only if the match gets there.
      item, stop = { op = FAIL, message = item }, #pattern + 1
      state.may_fail = true
    end
    items[#items + 1], at = item, stop
  end
  items.wild, items.anchor = state.wild, anchor
  -- Find the character that must follow a repetition, if it is a single one. Only positions before
  -- it need to be tried.
  for index, item in ipairs(items) do
    if item.op >= STAR and item.op <= MAYBE then
      local following = index + 1
      while items[following] and WITHOUT_WIDTH[items[following].op] do following = following + 1 end
      local after = items[following]
      if after and (after.op == SINGLE or after.op == PLUS) then item.guard = after end
    end
  end
  -- The C matcher would report an error with a position in this file.
  items.may_fail = state.open > 0 or state.may_fail
  return items
end

local parsed, kept = { [true] = {}, [false] = {} }, 0

local function lookup(pattern, anchored)
  local items = parsed[anchored][pattern]
  if not items then
    items = parse(pattern, anchored)
    if kept >= 200 then parsed, kept = { [true] = {}, [false] = {} }, 0 end
    if #pattern <= 1000 then parsed[anchored][pattern], kept = items, kept + 1 end
  end
  return items
end

-- Returns whether Lua's own matcher is fast enough. Each repetition may end at any position that is
-- not before the end of the preceding repetition, hence the division.
local function affordable(items, length)
  if #items > LONGEST or items.may_fail then return false end
  local steps = 1
  for power = 1, items.wild + (items.anchor and 0 or 1) do
    steps = steps * (length + 1) / power
    if steps > AFFORDABLE then return false end
  end
  if steps > NOTICEABLE then charge(1000) end
  return true
end

-- Matching ---------------------------------------------------------------------------------------

local subject, size, pattern_items
local starts, lengths, level = {}, {}, 0
local UNCLOSED, PLACE = -1, -2

local function balanced(at, opening, closing)
  if byte(subject, at) ~= opening then return nil end
  local depth = 1
  for next_at = at + 1, size do
    local this = byte(subject, next_at)
    if this == closing then
      depth = depth - 1
      if depth == 0 then return next_at + 1 end
    elseif this == opening then
      depth = depth + 1
    end
  end
  return nil
end

-- Returns the end (exclusive) of a match of the items from `index` on at position `at`, or nil.
local function match_here(at, index)
  while true do
    local item = pattern_items[index]
    if item == nil then return at end
    local op = item.op
    if op == SINGLE then
      if at > size or not item.set[byte(subject, at)] then return nil end
      at = at + 1
    elseif op == STAR or op == PLUS then
      local set, stop = item.set, at
      while stop <= size and set[byte(subject, stop)] do stop = stop + 1 end
      if op == PLUS then at = at + 1 end
      local wanted = item.guard and item.guard.set
      while stop >= at do
        if not wanted or stop <= size and wanted[byte(subject, stop)] then
          local found = match_here(stop, index + 1)
          if found then return found end
        end
        stop = stop - 1
      end
      return nil
    elseif op == LAZY then
      local set, wanted = item.set, item.guard and item.guard.set
      while true do
        if not wanted or at <= size and wanted[byte(subject, at)] then
          local found = match_here(at, index + 1)
          if found then return found end
        end
        if at > size or not set[byte(subject, at)] then return nil end
        at = at + 1
      end
    elseif op == MAYBE then
      if at <= size and item.set[byte(subject, at)] then
        local found = match_here(at + 1, index + 1)
        if found then return found end
      end
    elseif op == OPEN or op == POSITION then
      level = level + 1
      starts[level], lengths[level] = at, op == OPEN and UNCLOSED or PLACE
      local found = match_here(at, index + 1)
      if not found then level = level - 1 end
      return found
    elseif op == CLOSE then
      local which = level
      while lengths[which] ~= UNCLOSED do which = which - 1 end
      lengths[which] = at - starts[which]
      local found = match_here(at, index + 1)
      if not found then lengths[which] = UNCLOSED end
      return found
    elseif op == BACK then
      local which = item.index
      if which < 1 or which > level or lengths[which] == UNCLOSED then
        error("invalid capture index", 0)
      end
      local length = lengths[which]
      if length < 0 or size - at + 1 < length then return nil end
      local start = starts[which]
      if sub(subject, start, start + length - 1) ~= sub(subject, at, at + length - 1) then
        return nil
      end
      at = at + length
    elseif op == BALANCE then
      local stop = balanced(at, item[1], item[2])
      if not stop then return nil end
      at = stop
    elseif op == FRONTIER then
      local set = item.set
      local before = at == 1 and 0 or byte(subject, at - 1)
      local this = at > size and 0 or byte(subject, at)
      if set[before] or not set[this] then return nil end
    elseif op == FAIL then
      error(item.message, 0)
    else -- FINISH
      if at ~= size + 1 then return nil end
    end
    index = index + 1
  end
end

local function begin(text, items)
  subject, size, pattern_items, level = text, #text, items, 0
end

local function capture(index, start, stop)
  if index > level then
    if index == 1 then return sub(subject, start, stop - 1) end
    error("invalid capture index", 0)
  end
  local length = lengths[index]
  if length == PLACE then return starts[index] end
  if length == UNCLOSED then error("unfinished capture", 0) end
  return sub(subject, starts[index], starts[index] + length - 1)
end

-- Returns all captures of the last match, or the whole match if there are none and `start` is
-- given.
local function captures(start, stop)
  local count = (level == 0 and start) and 1 or level
  local found = {}
  for index = 1, count do found[index] = capture(index, start, stop) end
  return count, found
end

-- The string functions ---------------------------------------------------------------------------

local function rethrow(message)
  if type(message) == "string" then error(host.plain_message(message), 3) end
  error(message, 0)
end

local function prepare(pattern, anchored)
  local ok, items = pcall(lookup, pattern, anchored)
  if not ok then error(items, 3) end
  return items
end

local SPECIAL = "[%^%$%*%+%?%.%(%[%%%-]"

local function start_of(init, length)
  if init > 0 then return init end
  if init == 0 then return 1 end
  init = length + init + 1
  return init < 1 and 1 or init
end

local function search(text, items, init, whole)
  begin(text, items)
  for at = init, items.anchor and init or size + 1 do
    level = 0
    local stop = match_here(at, 1)
    if stop then
      local count, found = captures(whole and at or nil, stop)
      return at, stop, count, found
    end
  end
end

local function find(...)
  local count, text, pattern, init, plain = select("#", ...), ...
  text, pattern = check_string(count, 1, text), check_string(count, 2, pattern)
  init = start_of(init == nil and 1 or check_integer(count, 3, init), #text)
  if init > #text + 1 then init = #text + 1 end -- as in Lua 5.1
  if plain or not raw_find(pattern, SPECIAL) then
    if (#text - init + 1) * #pattern <= NOTICEABLE then
      return raw_find(text, pattern, init, true)
    end
    host.charge_bytes(#text + #pattern)
    local at = host.py.find(text, pattern, init - 1)
    if at < 0 then return nil end
    return at + 1, at + #pattern
  end
  local items = prepare(pattern, true)
  if affordable(items, #text - init + 1) then return raw_find(text, pattern, init) end
  local ok, at, stop, length, found = pcall(search, text, items, init, false)
  if not ok then rethrow(at) end
  if not at then return nil end
  return at, stop - 1, unpack(found, 1, length)
end

local function match(...)
  local count, text, pattern, init = select("#", ...), ...
  text, pattern = check_string(count, 1, text), check_string(count, 2, pattern)
  init = start_of(init == nil and 1 or check_integer(count, 3, init), #text)
  if init > #text + 1 then init = #text + 1 end
  local items = prepare(pattern, true)
  if affordable(items, #text - init + 1) then return raw_match(text, pattern, init) end
  local ok, at, _, length, found = pcall(search, text, items, init, true)
  if not ok then rethrow(at) end
  if not at then return nil end
  return unpack(found, 1, length)
end

local function gmatch(...)
  local count, text, pattern = select("#", ...), ...
  text, pattern = check_string(count, 1, text), check_string(count, 2, pattern)
  local items = prepare(pattern, false)
  if affordable(items, #text) then return raw_gmatch(text, pattern) end
  local at = 1
  return function()
    if at > #text + 1 then return nil end
    local ok, start, stop, length, found = pcall(search, text, items, at, true)
    if not ok then rethrow(start) end
    if not start then
      at = #text + 2
      return nil
    end
    at = stop == start and stop + 1 or stop
    return unpack(found, 1, length)
  end
end

local function expand(replacement, start, stop)
  local parts, from = {}, 1
  while true do
    local at = raw_find(replacement, "%", from, true)
    if not at then break end
    parts[#parts + 1] = sub(replacement, from, at - 1)
    local this = sub(replacement, at + 1, at + 1)
    if this == "0" then
      parts[#parts + 1] = sub(subject, start, stop - 1)
    elseif raw_find(this, "^%d") then
      parts[#parts + 1] = tostring(capture(byte(this) - 48, start, stop))
    else
      parts[#parts + 1] = this
    end
    from = at + 2
  end
  parts[#parts + 1] = sub(replacement, from)
  return concat(parts)
end

local function substitute(text, items, replacement, most)
  local kind = type(replacement)
  local parts, count, at = {}, 0, 1
  while count < most do
    begin(text, items)
    local stop = match_here(at, 1)
    if stop then
      count = count + 1
      local whole = sub(text, at, stop - 1)
      local value
      if kind == "string" then
        value = expand(replacement, at, stop)
      elseif kind == "table" then
        value = replacement[capture(1, at, stop)]
      else
        local length, found = captures(at, stop)
        value = replacement(unpack(found, 1, length))
      end
      if not value then
        value = whole
      elseif type(value) ~= "string" and type(value) ~= "number" then
        error("invalid replacement value (a " .. type(value) .. ")", 0)
      end
      parts[#parts + 1] = value
    end
    if stop and stop > at then
      at = stop
    elseif at <= #text then
      parts[#parts + 1] = sub(text, at, at)
      at = at + 1
    else
      break
    end
    if items.anchor then break end
  end
  parts[#parts + 1] = sub(text, at)
  return concat(parts), count
end

local OWN_ERRORS = { ["invalid capture index"] = true, ["unfinished capture"] = true }

local function is_own(message)
  return OWN_ERRORS[message] or raw_find(message, "^invalid replacement value %(a ")
end

local REPLACEMENTS = { string = true, table = true, ["function"] = true }

local function gsub(...)
  local count, text, pattern, replacement, most = select("#", ...), ...
  text, pattern = check_string(count, 1, text), check_string(count, 2, pattern)
  if type(replacement) == "number" then replacement = replacement .. "" end
  if not REPLACEMENTS[type(replacement)] then
    argument_error(0, 3, "string/function/table expected")
  end
  most = most == nil and #text + 1 or check_integer(count, 4, most)
  local items = prepare(pattern, true)
  local ok, result, made
  local each = #text + 1 -- number of positions at which a match can be found
  if affordable(items, #text) then
    if type(replacement) == "string" then host.check_size(each * (#replacement + 1)) end
    ok, result, made = pcall(raw_gsub, text, pattern, replacement, most)
  else
    ok, result, made = pcall(substitute, text, items, replacement, most)
  end
  if not ok then
    if type(result) == "string" and is_own(result) then rethrow(result) end
    error(result, 0) -- the error of a replacement function
  end
  return result, made
end

return { find = find, match = match, gmatch = gmatch, gfind = gmatch, gsub = gsub }
