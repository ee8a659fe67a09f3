-- The trusted part of the script host, which all other files of this folder use.
--
-- It is called once for each runtime with `py` (callbacks into the engine) and `limits`, and
-- returns `host`. It keeps references to Lua's own functions, so that scripts need no access to
-- them.
local py, limits = ...

local rawset, setmetatable, tonumber, tostring, type, xpcall =
  rawset, setmetatable, tonumber, tostring, type, xpcall
local load, loadstring, setfenv, collectgarbage = load, loadstring, setfenv, collectgarbage
local getinfo, gethook, sethook = debug.getinfo, debug.gethook, debug.sethook
local floor, min, sub, byte, dump, format, gsub =
  math.floor, math.min, string.sub, string.byte, string.dump, string.format, string.gsub
local create = coroutine.create
local must_stop = py.must_stop

local host = { py = py, limits = limits }

-- Positions in scripts ---------------------------------------------------------------------------

local function is_of_host(info) return info.source == "=host" end
local function is_of_c(info) return info.what == "C" end

-- Returns the position of a frame, or an empty string if it is in C or in this host.
local function position_of(info)
  if is_of_host(info) or info.currentline <= 0 then return "" end
  return format("%s:%d: ", info.short_src, info.currentline)
end

local raw_error = error

-- Like Lua's own error(), but never adds a position in this host.
local function error(message, level)
  local info = level ~= 0 and type(message) == "string" and getinfo((level or 1) + 1, "Sl")
  raw_error(info and position_of(info) .. message or message, 0)
end
host.error = error

-- Returns whether a real server has the frame at a level, too. There, a function of this host is one
-- function in C: what it calls here, in C or in this host, is a part of it.
local function is_shown(level, info)
  local caller = getinfo(level + 2, "S")
  if is_of_host(info) then return not caller or not is_of_host(caller) end
  while is_of_c(info) and caller and is_of_c(caller) do
    level = level + 1
    caller = getinfo(level + 2, "S")
  end
  return not is_of_c(info) or not caller or not is_of_host(caller)
end

-- Returns the position that error() adds to a message, without the frames of this host: that of the
-- caller of the calling function for level 1, of the caller's caller for level 2.
function host.position(level)
  local at = 3
  while true do
    local info = getinfo(at, "Sl")
    if not info then return "" end
    if is_shown(at, info) then
      level = level - 1
      if level == 0 then return position_of(info) end
    end
    at = at + 1
  end
end

-- Errors as C functions raise them ---------------------------------------------------------------

-- Raises the error of luaL_argerror for the function `depth` frames above the caller.
local function argument_error(depth, number, message)
  local info, caller = getinfo(2 + depth, "n"), getinfo(3 + depth, "S")
  local name = info and caller and not is_of_host(caller) and info.name
  if name and info.namewhat == "method" then
    number = number - 1
    if number == 0 then
      error(format("calling '%s' on bad self (%s)", name, message), 3 + depth)
    end
  end
  error(format("bad argument #%d to '%s' (%s)", number, name or "?", message), 3 + depth)
end
host.argument_error = argument_error

local function type_error(depth, number, expected, count, value)
  local got = number > count and "no value" or type(value)
  argument_error(depth + 1, number, expected .. " expected, got " .. got)
end
host.type_error = type_error

-- The following checks take the number of arguments, to distinguish nil from a missing argument.
function host.check_string(count, number, value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return value .. "" end
  type_error(1, number, "string", count, value)
end

local function to_number(depth, count, number, value)
  if type(value) == "number" then return value end
  local converted = type(value) == "string" and tonumber(value)
  return converted or type_error(depth + 1, number, "number", count, value)
end

function host.check_number(count, number, value)
  local checked = to_number(1, count, number, value)
  return checked
end

-- Converts a number to a 64-bit integer as C does: it is truncated, and numbers that do not fit
-- become the minimum.
local function to_integer(value)
  if value >= 0 then value = floor(value) else value = -floor(-value) end
  if value ~= value or value >= 2 ^ 63 or value < -2 ^ 63 then return -2 ^ 63 end
  return value
end
host.to_integer = to_integer

function host.check_integer(count, number, value)
  local checked = to_integer(to_number(1, count, number, value))
  return checked
end

-- Returns an argument as an integer of 32 bits, as a C function reads it.
function host.check_int(count, number, value)
  value = to_integer(to_number(1, count, number, value)) % 2 ^ 32
  return value < 2 ^ 31 and value or value - 2 ^ 32
end

function host.check_table(count, number, value)
  if type(value) == "table" then return value end
  type_error(1, number, "table", count, value)
end

-- Removes the position from an error that this host raised, because errors of C functions have
-- none.
function host.plain_message(message)
  return (gsub(message, "^host:%d+: ", ""))
end

-- Limits -----------------------------------------------------------------------------------------

-- Instructions between two checks of the limits while little memory is in use. Measured for
-- `for i = 1, 1e7 do n = n + i end`, which takes 0.05 s on Redis 7.0: 0.12 s with checks every 1,000
-- instructions, 0.07 s with 5,000 or more. The longest time between two checks, in a loop that adds
-- 1 to a string of 200,000 digits: 0.1 s with 1,000, 0.5 s with 5,000, 2.5 s with 30,000.
local INTERVAL = 5000
local COROUTINE_INTERVAL = 1000 -- the same for a new coroutine
local spent = 0
local handed = 0 -- bytes that the running script has passed to commands and to its reply
local stopped = nil -- the error that ended the running script
local running = false
local unhurried = false -- whether a library is running whose instructions all take little time
local run -- the only function that continues after a script was stopped

local hook

local function stop(message)
  stopped = stopped or { err = message }
  -- From now on, the hook runs on every instruction and line, so no pcall can catch the error for
  -- long.
  sethook(hook, "l", 1)
  error(stopped, 0)
end

local function check_memory()
  if collectgarbage("count") > limits.kilobytes then
    collectgarbage()
    if collectgarbage("count") > limits.kilobytes then stop(limits.memory_text) end
  end
end

-- The time of one instruction can be proportional to the memory in use (concatenation, comparison,
-- length of a table). Therefore the limits are checked more often the more memory is in use.
local function pace(more)
  local kilobytes = collectgarbage("count") + more
  local wanted = 10
  if unhurried or kilobytes < 1024 then
    wanted = INTERVAL
  elseif kilobytes < 4096 then
    wanted = 1000
  elseif kilobytes < 16384 then
    wanted = 100
  end
  local _, _, present = gethook()
  if present ~= wanted then sethook(hook, "", wanted) end
end

local function check_limits()
  if spent > limits.instructions then stop(limits.instructions_text) end
  if must_stop() then stop(limits.seconds_text) end
  check_memory()
end

function hook()
  if stopped then
    local frame = getinfo(2, "f")
    if frame and frame.func == run then return end
    sethook(hook, "l", 1)
    error(stopped, 0)
  end
  local _, _, passed = gethook()
  spent = spent + passed
  check_limits()
  pace(0)
end

-- Runs `body`, a library function whose instructions take little time, however much memory is in
-- use.
function host.unhurriedly(body, ...)
  unhurried = true
  pace(0)
  return body(...)
end

-- Must be called when the function passed to unhurriedly() has ended, with or without an error.
function host.hurry()
  unhurried = false
  if running and not stopped then pace(0) end
end

-- Charges instructions for work that is not counted, such as a call into C or into the engine.
local function charge(amount)
  spent = spent + amount
  if stopped then error(stopped, 0) end
  check_limits()
end
host.charge = charge

-- Charges for C code that processes this number of bytes, before it runs.
local function charge_bytes(bytes)
  if bytes > 10000 then
    charge(floor(bytes / 50))
    pace(bytes / 1024)
  end
end
host.charge_bytes = charge_bytes

-- Raises an error for a result that is too large for the memory limit, before C code builds it.
function host.check_size(bytes)
  if bytes > limits.kilobytes * 1024 then error("not enough memory", 0) end
  charge_bytes(bytes)
  if bytes > 65536 and collectgarbage("count") * 1024 + bytes > limits.kilobytes * 1024 then
    collectgarbage()
  end
end

-- Counts bytes that leave Lua. A string that is passed a thousand times counts a thousand times.
function host.hand_over(bytes)
  handed = handed + bytes
  if handed > 2 * limits.kilobytes * 1024 then stop(limits.memory_text) end
end

-- Creates a coroutine that has the hook, too, and charges for the instructions it may run
-- uncounted.
function host.create_coroutine(body)
  charge(COROUTINE_INTERVAL)
  local thread = create(body)
  local _, _, interval = gethook()
  sethook(thread, hook, "", min(interval, COROUTINE_INTERVAL))
  return thread
end

-- Read-only tables -------------------------------------------------------------------------------

-- Maps each read-only table to the table whose content it shows.
local real = setmetatable({}, { __mode = "k" })
host.real = real
-- What getmetatable returns for read-only tables. It returns nil for those without an entry.
host.shown_metatables = setmetatable({}, { __mode = "k" })
local READONLY = "Attempt to modify a readonly table"
host.READONLY = READONLY

local function refuse() error(READONLY, 2) end

-- Returns a read-only view of a table, and a function that makes the view show another table.
function host.protect(content)
  local behaviour = { __index = content, __newindex = refuse, __metatable = false }
  local shown = setmetatable({}, behaviour)
  real[shown] = content
  return shown, function(other) behaviour.__index, real[shown] = other, other end
end

-- Running ----------------------------------------------------------------------------------------

-- Keeps an exception that a signal's handler raised in a function written in Python. It is raised
-- after the script, which may catch the error.
local function keep_exception(ok, value)
  if not ok and type(value) == "userdata" then py.keep_exception(value) end
end
host.keep_exception = keep_exception

-- Adds the position of an error as scripts of a real server see it, skipping the frames of this
-- host.
local function locate(value)
  keep_exception(false, value)
  if type(value) ~= "table" then value = { err = "ERR " .. tostring(value) } end
  local level, info = 2, getinfo(2, "Sl")
  while info and (is_of_host(info) or is_of_c(info) or info.what == "tail") do
    level = level + 1
    info = getinfo(level, "Sl")
  end
  if info then
    rawset(value, "source", info.source)
    rawset(value, "line", info.currentline)
  end
  return value
end

local resets = {}
-- Registers a function that is called before each script, to reset state.
function host.on_reset(action) resets[#resets + 1] = action end

-- Runs `body` under the limits, for at most that many seconds. Returns true and its value, or false
-- and an error table.
function run(body, seconds)
  py.start_timing(seconds)
  spent, stopped, handed, unhurried = 0, nil, 0, false
  for index = 1, #resets do resets[index]() end
  sethook(hook, "", INTERVAL)
  pace(0)
  running = true
  local ok, value = xpcall(body, locate)
  sethook()
  running = false
  if stopped then
    value, stopped = stopped, nil
    collectgarbage()
    return false, value
  end
  if not ok and type(value) ~= "table" then value = { err = "ERR " .. tostring(value) } end
  return ok, value
end
host.run = run

-- Returns the kind of a function: "C", also for those of this host, or "Lua" or "main".
function host.what(body)
  local info = getinfo(body, "S")
  return is_of_host(info) and "C" or info.what
end

-- Returns the byte code of a function. Scripts cannot load byte code, because Lua's check of it is
-- not reliable.
function host.dump(body)
  local info = getinfo(body, "S")
  if info.what == "C" or info.source == "=host" then error("unable to dump given function", 3) end
  local code = dump(body)
  charge_bytes(#code)
  return code
end

local PIECE = 2048

-- For some sources, Lua's compiler takes quadratic time, and it runs no hook. Therefore it receives
-- the source in pieces, and the time limit is checked before each piece.
local function read_source(source, name)
  if #source <= PIECE then return loadstring(source, name) end
  local at, late = 1, false
  if running then
    charge(floor(#source / 10))
  else
    py.start_timing(limits.seconds_to_load)
  end
  local body, message = load(function()
    late = must_stop()
    if late then error("it took too long to compile", 0) end
    at = at + PIECE
    return sub(source, at - PIECE, at - 1)
  end, name)
  if late and running then stop(limits.seconds_text) end
  return body, message
end

-- Compiles source text to a function with the given environment. Rejects byte code.
function host.compile(source, name, environment)
  if byte(source) == 27 then
    return nil, sub(name, 2) .. ":1: unexpected symbol near 'char(27)'"
  end
  local body, message = read_source(source, name)
  if not body then return nil, message end
  return setfenv(loadstring(py.keep_frames(dump(body)), name), environment)
end

return host
