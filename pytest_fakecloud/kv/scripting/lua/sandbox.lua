-- The globals of scripts: the harmless functions of Lua. They are wrapped if the C function could
-- run for a long time, or would reveal that a read-only table is an empty table. Files, processes,
-- modules, debug and environments are not available.
local host, patterns = ...

local error, getmetatable, next, pairs, pcall, rawget, rawset, select, setmetatable, tonumber, type,
  unpack = host.error, getmetatable, next, pairs, pcall, rawget, rawset, select, setmetatable, tonumber,
  type, unpack
local floor, find, match = math.floor, string.find, string.match
local check_int, check_integer, check_string, check_table, argument_error, type_error =
  host.check_int, host.check_integer, host.check_string, host.check_table, host.argument_error,
  host.type_error
local charge, charge_bytes, check_size, real, READONLY =
  host.charge, host.charge_bytes, host.check_size, host.real, host.READONLY

-- Tables -----------------------------------------------------------------------------------------

local function guard(value)
  if real[value] then error(READONLY, 0) end
end

local function get_raw(...)
  local count, target, key = select("#", ...), ...
  check_table(count, 1, target)
  if count < 2 then argument_error(0, 2, "value expected") end
  return rawget(real[target] or target, key)
end

local function set_raw(...)
  local count, target, key, value = select("#", ...), ...
  check_table(count, 1, target)
  if count < 3 then argument_error(0, count + 1, "value expected") end
  guard(target)
  if key == nil then error("table index is nil", 0) end
  if key ~= key then error("table index is NaN", 0) end
  return rawset(target, key, value)
end

local function set_metatable(...)
  local count, target, metatable = select("#", ...), ...
  check_table(count, 1, target)
  if metatable ~= nil and type(metatable) ~= "table" or count < 2 then
    argument_error(0, 2, "nil or table expected")
  end
  guard(target)
  local present = getmetatable(target)
  if type(present) == "table" and rawget(present, "__metatable") ~= nil or
     present ~= nil and type(present) ~= "table" then
    error("cannot change a protected metatable", 2)
  end
  return setmetatable(target, metatable)
end

local function get_metatable(...)
  if select("#", ...) == 0 then argument_error(0, 1, "value expected") end
  local value = ...
  if real[value] then return host.shown_metatables[value] end
  if value == host.null then return nil end
  return getmetatable(value)
end

local function next_pair(...)
  local count, target, key = select("#", ...), ...
  check_table(count, 1, target)
  local ok, found, value = pcall(next, real[target] or target, key)
  if not ok then error(found, 0) end
  return found, value
end

local function copy(content)
  local other = {}
  for key, value in pairs(content) do other[key] = value end
  return other
end

local function all_pairs(...)
  local target = ...
  check_table(select("#", ...), 1, target)
  local content = real[target]
  return next, content and copy(content) or target, nil
end

local LONGEST_SHIFT = 1e7 -- more elements than fit into the memory limit of a script

local raw_concat, raw_insert, raw_remove, raw_sort =
  table.concat, table.insert, table.remove, table.sort

local function concat(...)
  local count, target, separator, first, last = select("#", ...), ...
  check_table(count, 1, target)
  separator = separator == nil and "" or check_string(count, 2, separator)
  first = first == nil and 1 or check_int(count, 3, first)
  last = last == nil and #target or check_int(count, 4, last)
  if last - first > 1000 then charge(last - first) end
  local ok, result = pcall(raw_concat, target, separator, first, last)
  if ok then return result end
  error(result, 2)
end

-- Maximum number of elements that are sorted without checking the limits.
local MOST_UNCOUNTED = 1000
-- Maximum number of values in the frame of a C function: its arguments and results.
local WIDEST = 8000

-- Lua's own unpack() counts with 32 bits, and crashes if the count overflows.
local function unpack_range(...)
  local count, target, first, last = select("#", ...), ...
  check_table(count, 1, target)
  first = first == nil and 1 or check_int(count, 2, first)
  last = last == nil and #target or check_int(count, 3, last)
  if first > last then return end
  if last - first >= WIDEST - count then error("too many results to unpack", 2) end
  if count == 1 then return unpack(target) end
  if count == 2 then return unpack(target, first) end
  return unpack(target, first, last)
end

local function insert(...)
  local count, target = select("#", ...), ...
  check_table(count, 1, target)
  guard(target)
  local length = #target
  if count == 2 then
    rawset(target, length + 1, (select(2, ...)))
    return
  end
  if count ~= 3 then error("wrong number of arguments to 'insert'", 2) end
  local position = check_int(count, 2, (select(2, ...)))
  if length + 1 - position > LONGEST_SHIFT then error("table too large to shift", 2) end
  if length - position > 1000 then charge(length - position) end
  raw_insert(target, position, (select(3, ...)))
end

local function remove(...)
  local count, target, position = select("#", ...), ...
  check_table(count, 1, target)
  guard(target)
  local length = #target
  position = position == nil and count < 2 and length or check_int(count, 2, position)
  if length - position > LONGEST_SHIFT then error("table too large to shift", 2) end
  if length - position > 1000 then charge(length - position) end
  return raw_remove(target, position)
end

local function sort(...)
  local count, target, before = select("#", ...), ...
  check_table(count, 1, target)
  if before ~= nil and type(before) ~= "function" then
    type_error(0, 2, "function", count, before)
  end
  guard(target)
  local length = #target
  if length > 50 then charge(length * 20) end
  if not before then
    -- Sorting takes quadratic time in the worst case, and comparing long strings takes long. A
    -- comparison function in Lua is counted.
    local work = 0
    for index = 1, length do
      local value = rawget(target, index)
      work = work + (type(value) == "string" and #value or 8)
    end
    if length > MOST_UNCOUNTED or work > 1e5 then
      before = function(left, right)
        if type(left) == "string" then charge_bytes(#left) end
        return left < right
      end
    end
  elseif host.what(before) == "C" then
    local compare = before
    before = function(left, right) return (compare(left, right)) end
  end
  local ok, message = pcall(raw_sort, target, before)
  if not ok then
    if message == "invalid order function for sorting" then error(message, 2) end
    error(message, 0)
  end
end

local function longest(...)
  local target = ...
  check_table(select("#", ...), 1, target)
  local most = 0
  for key in next, target do
    if type(key) == "number" and key > most then most = key end
  end
  return most
end

local function for_each(...)
  local count, target, action = select("#", ...), ...
  check_table(count, 1, target)
  if type(action) ~= "function" then type_error(0, 2, "function", count, action) end
  for key, value in pairs(real[target] or target) do
    local result = action(key, value)
    if result ~= nil then return result end
  end
end

-- Strings ----------------------------------------------------------------------------------------

local raw_format, raw_rep = string.format, string.rep

-- Returns a string function that charges for every byte of its argument.
local function linear(name)
  local body = string[name]
  return function(...)
    local text = check_string(select("#", ...), 1, (...))
    charge_bytes(#text)
    return body(text)
  end
end

local function rep(...)
  local count, text, times = select("#", ...), ...
  text, times = check_string(count, 1, text), check_integer(count, 2, times)
  if text == "" or times <= 0 then return "" end
  check_size(#text * times)
  return raw_rep(text, times)
end

local function dumped(...)
  local count, body = select("#", ...), ...
  if type(body) ~= "function" then type_error(0, 1, "function", count, body) end
  return host.dump(body)
end

-- Only quoting (%q) processes every byte; other formats copy strings.
local function formatted(...)
  local template = ...
  if type(template) == "string" and find(template, "q", 1, true) then
    for index = 2, select("#", ...) do
      local value = select(index, ...)
      if type(value) == "string" then charge_bytes(#value * 4) end
    end
  end
  local ok, text = pcall(raw_format, ...)
  if ok then return text end
  local number, message = match(text, "^bad argument #(%d+) to '%?' %((.*)%)$")
  if number then argument_error(0, tonumber(number), message) end
  error(text, 2)
end

-- Calls ------------------------------------------------------------------------------------------

-- Lua's own error() would count the frames of this host, and reveal their positions.
local function raise(...)
  local count, message, level = select("#", ...), ...
  level = level == nil and 1 or check_int(count, 2, level)
  local kind = type(message)
  if level > 0 and (kind == "string" or kind == "number") then
    message = host.position(level) .. message
  end
  error(message, 0)
end

-- Like the server's pcall, return the message of an error table instead of the table.
local function plain(ok, ...)
  local value = ...
  host.keep_exception(ok, value)
  if not ok and type(value) == "table" then
    local text = rawget(value, "err")
    if text ~= nil then return ok, text end
  end
  return ok, ...
end

local function protected_call(...)
  if select("#", ...) == 0 then return false end
  return plain(pcall(...))
end

-- Lua would call the handler where the error was raised. Within a hook, no limits would apply
-- there.
local function handled_call(...)
  local count, body, handler = select("#", ...), ...
  if count < 2 then argument_error(0, 2, "value expected") end
  return (function(ok, ...)
    if ok then return ok, ... end
    host.keep_exception(ok, (...))
    local handled, value = pcall(handler, ...)
    if handled then return false, value end
    return false, "error in error handling"
  end)(pcall(body))
end

local create, wrap_resume = host.create_coroutine, coroutine.resume

local function new_coroutine(...)
  local count, body = select("#", ...), ...
  if type(body) ~= "function" or find(host.what(body), "^C") then
    argument_error(0, 1, "Lua function expected")
  end
  return create(body)
end

local function kept(ok, ...)
  host.keep_exception(ok, (...))
  return ok, ...
end

local function resume_coroutine(...)
  local _, thread = select("#", ...), ...
  if type(thread) ~= "thread" then argument_error(0, 1, "coroutine expected") end
  return kept(wrap_resume(...))
end

local function resumed(ok, ...)
  if not ok then
    local value = ...
    if type(value) == "number" then value = value .. "" end
    error(value, 3)
  end
  return ...
end

local function wrapped_coroutine(...)
  local count, body = select("#", ...), ...
  if type(body) ~= "function" or find(host.what(body), "^C") then
    argument_error(0, 1, "Lua function expected")
  end
  local thread = create(body)
  return function(...) return resumed(wrap_resume(thread, ...)) end
end

-- Return values of collectgarbage() for options that a script must not change.
local UNCHANGED = { stop = 0, restart = 0, setpause = 200, setstepmul = 200 }

local function collect(...)
  local count, option = select("#", ...), ...
  option = option == nil and "collect" or check_string(count, 1, option)
  if option == "count" then return collectgarbage("count") end
  if option == "collect" or option == "step" then
    charge(100000) -- a collection takes long if there are many objects
    return collectgarbage(option)
  end
  if UNCHANGED[option] then return UNCHANGED[option] end
  argument_error(0, 1, "invalid option '" .. option .. "'")
end

-- The random numbers of real servers: one sequence for all scripts, restarted by math.randomseed().
local low, middle, high = 0x330E, 0xABCD, 0x1234

local function seed(value)
  value = floor(value) % 2 ^ 32
  low, middle, high = 0x330E, value % 65536, floor(value / 65536)
end

local function draw()
  -- x = 0x5DEECE66D * x + 0xB modulo 2^48, in 16-bit parts
  local first = 0xE66D * low + 0xB
  local second = 0xE66D * middle + 0xDEEC * low + floor(first / 65536)
  local third = 0xE66D * high + 0xDEEC * middle + 5 * low + floor(second / 65536)
  low, middle, high = first % 65536, second % 65536, third % 65536
  return high * 32768 + floor(middle / 2)
end

local function random(...)
  local count = select("#", ...)
  local number = (draw() % 2147483647) / 2147483647
  if count == 0 then return number end
  local least, most = ...
  if count == 1 then
    most = check_integer(count, 1, least)
    if most < 1 then argument_error(0, 1, "interval is empty") end
    return floor(number * most) + 1
  elseif count == 2 then
    least, most = check_integer(count, 1, least), check_integer(count, 2, most)
    if least > most then argument_error(0, 2, "interval is empty") end
    return floor(number * (most - least + 1)) + least
  end
  error("wrong number of arguments", 2)
end

local function random_seed(...)
  seed(check_integer(select("#", ...), 1, (...)))
end

-- The tables -------------------------------------------------------------------------------------

local function chosen(library, names)
  local found = {}
  for name in string.gmatch(names, "%S+") do found[name] = library[name] end
  return found
end

local protect = host.protect
local libraries = {}

local string_library = chosen(string, "byte char len sub")
for _, name in ipairs({ "lower", "reverse", "upper" }) do string_library[name] = linear(name) end
for name, body in pairs(patterns) do string_library[name] = body end
string_library.dump, string_library.format, string_library.rep = dumped, formatted, rep
libraries.string = protect(string_library)

local table_library = chosen(table, "getn setn")
table_library.maxn = longest
table_library.concat = concat
table_library.insert, table_library.remove, table_library.sort = insert, remove, sort
table_library.foreach = for_each
table_library.foreachi = function(...)
  local count, target, action = select("#", ...), ...
  check_table(count, 1, target)
  if type(action) ~= "function" then type_error(0, 2, "function", count, action) end
  for index = 1, #target do
    local result = action(index, rawget(target, index))
    if result ~= nil then return result end
  end
end
libraries.table = protect(table_library)

local math_library = copy(math)
math_library.random, math_library.randomseed = random, random_seed
libraries.math = protect(math_library)

libraries.coroutine = protect({
  create = new_coroutine, wrap = wrapped_coroutine, resume = resume_coroutine,
  running = coroutine.running, status = coroutine.status, yield = coroutine.yield,
})

if host.limits.has_os then
  local clock = host.py.clock
  libraries.os = protect({ clock = function()
    local seconds = clock()
    return seconds
  end })
end

local BASE = "assert gcinfo ipairs rawequal select tonumber tostring type"

-- Methods of strings such as ("x"):rep(2) are found here. Scripts cannot reach this table
-- otherwise.
local strings = getmetatable("")
strings.__index = string_library
strings.__metatable = protect({ __index = libraries.string })

-- Reading an undefined global is an error.
host.strict = { __index = function(_, name)
  local kind = type(name)
  if kind ~= "string" and kind ~= "number" then
    error("Second argument to luaProtectedTableError must be a string or number", 2)
  end
  error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
end }

-- Creates a set of globals. Returns the read-only table for scripts, the table with its content,
-- and a function that makes the former show another table.
function host.new_globals(content)
  local globals = chosen(_G, BASE)
  local shown
  local function load_string(...)
    local count, source, name = select("#", ...), ...
    source = check_string(count, 1, source)
    name = name == nil and source or check_string(count, 2, name)
    return host.compile(source, name, shown)
  end
  globals.loadstring = load_string
  globals.load = function(...)
    local count, reader, name = select("#", ...), ...
    if type(reader) ~= "function" then type_error(0, 1, "function", count, reader) end
    local pieces = {}
    while true do
      local ok, piece = pcall(reader)
      if not ok then return nil, piece end
      if piece == nil or piece == "" then break end
      if type(piece) ~= "string" then return nil, "reader function must return a string" end
      pieces[#pieces + 1] = piece
    end
    return host.compile(table.concat(pieces), name == nil and "=(load)" or name, shown)
  end
  globals.error = raise
  globals.rawget, globals.rawset = get_raw, set_raw
  globals.next, globals.pairs = next_pair, all_pairs
  globals.getmetatable, globals.setmetatable = get_metatable, set_metatable
  globals.pcall, globals.xpcall, globals.collectgarbage = protected_call, handled_call, collect
  globals._VERSION, globals.unpack = _VERSION, unpack_range
  for name, library in pairs(libraries) do globals[name] = library end
  for name, value in pairs(content) do globals[name] = value end
  local choose
  shown, choose = host.protect(globals)
  host.shown_metatables[shown] = protect({ __index = host.strict.__index })
  globals._G = shown
  setmetatable(globals, host.strict)
  return shown, globals, choose
end
