-- The trusted half of the script host: what every other file of this folder is built with.
--
-- Called once per runtime with `py` (callbacks into the engine) and `limits`; returns `host`. It
-- keeps Lua's own functions for itself, so that nothing of them has to be left where scripts look.
local py, limits = ...

local error, rawset, setmetatable, tonumber, tostring, type, xpcall =
  error, rawset, setmetatable, tonumber, tostring, type, xpcall
local load, loadstring, setfenv, collectgarbage = load, loadstring, setfenv, collectgarbage
local getinfo, gethook, sethook = debug.getinfo, debug.gethook, debug.sethook
local floor, sub, byte, dump, format, gsub =
  math.floor, string.sub, string.byte, string.dump, string.format, string.gsub
local create = coroutine.create
local clock = py.look

local host = { py = py, limits = limits }

-- Errors as C functions raise them ---------------------------------------------------------------

-- Raises what luaL_argerror would in the function `depth` frames above the caller.
local function argument_error(depth, number, message)
  local info = getinfo(2 + depth, "n")
  local name = info and info.name
  if info and info.namewhat == "method" then
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

-- The checks below take the number of arguments that came, to tell nil from no value.
function host.check_string(count, number, value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return value .. "" end
  type_error(1, number, "string", count, value)
end

function host.check_number(count, number, value)
  if type(value) == "number" then return value end
  local converted = tonumber(value)
  if converted and type(value) == "string" then return converted end
  type_error(1, number, "number", count, value)
end

-- A C integer: the part after the point is cut off, whatever does not fit becomes the least one.
local function to_integer(value)
  if value >= 0 then value = floor(value) else value = -floor(-value) end
  if value ~= value or value >= 2 ^ 63 or value < -2 ^ 63 then return -2 ^ 63 end
  return value
end
host.to_integer = to_integer

function host.check_integer(count, number, value)
  local kind = type(value)
  if kind ~= "number" then
    local converted = kind == "string" and tonumber(value)
    if not converted then type_error(1, number, "number", count, value) end
    value = converted
  end
  return to_integer(value)
end

-- The same, as a function of C reads it that keeps 32 bits.
function host.check_int(count, number, value)
  local kind = type(value)
  if kind ~= "number" then
    local converted = kind == "string" and tonumber(value)
    if not converted then type_error(1, number, "number", count, value) end
    value = converted
  end
  value = to_integer(value) % 2 ^ 32
  return value < 2 ^ 31 and value or value - 2 ^ 32
end

function host.check_table(count, number, value)
  if type(value) == "table" then return value end
  type_error(1, number, "table", count, value)
end

-- An error of this host's own code, as the C library would have put it: without a place.
function host.plain_message(message)
  return (gsub(message, "^host:%d+: ", ""))
end

-- Limits -----------------------------------------------------------------------------------------

local INTERVAL = 1000 -- instructions between two looks at the limits
local spent, deadline = 0, 0
local handed = 0 -- bytes the running script gave to commands, and to its reply
local stopped = nil -- the error that ended the running script
local running = false
local unhurried = false -- while a library runs whose every instruction is short
local run -- the one function that goes on after a script was stopped

local hook

local function stop(message)
  stopped = stopped or { err = message }
  -- From here on the hook fires on every instruction and line: no pcall outlives it.
  sethook(hook, "l", 1)
  error(stopped, 0)
end

local function check_memory()
  if collectgarbage("count") > limits.kilobytes then
    collectgarbage()
    if collectgarbage("count") > limits.kilobytes then stop(limits.memory_text) end
  end
end

-- One instruction may take as long as there are bytes (a concatenation, a comparison, the length
-- of a table), so the more there are, the fewer run between two looks.
local function pace(more)
  local kilobytes = collectgarbage("count") + more
  local wanted = (unhurried or kilobytes < 4096) and INTERVAL or kilobytes < 16384 and 100 or 10
  local _, _, present = gethook()
  if present ~= wanted then sethook(hook, "", wanted) end
end

local function check_limits()
  if spent > limits.instructions then stop(limits.instructions_text) end
  if clock() > deadline then stop(limits.seconds_text) end
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

-- Runs `body` of a library that handles no long values in one instruction, however many there are.
function host.unhurriedly(body, ...)
  unhurried = true
  pace(0)
  return body(...)
end

-- To be called when that has ended, in whatever way.
function host.hurry()
  unhurried = false
  if running and not stopped then pace(0) end
end

-- What cannot be counted as instructions (a call into C or into the engine) is charged here.
local function charge(amount)
  spent = spent + amount
  if stopped then error(stopped, 0) end
  check_limits()
end
host.charge = charge

-- Charges for what C does with that many bytes, before it begins.
local function charge_bytes(bytes)
  if bytes > 10000 then
    charge(floor(bytes / 50))
    pace(bytes / 1024)
  end
end
host.charge_bytes = charge_bytes

-- Refuses a result that could not be kept, before C tries to build it.
function host.check_size(bytes)
  if bytes > limits.kilobytes * 1024 then error("not enough memory", 0) end
  charge_bytes(bytes)
  if bytes > 65536 and collectgarbage("count") * 1024 + bytes > limits.kilobytes * 1024 then
    collectgarbage()
  end
end

-- Counts what leaves Lua: a string that is handed over a thousand times is a thousand strings.
function host.hand_over(bytes)
  handed = handed + bytes
  if handed > 2 * limits.kilobytes * 1024 then stop(limits.memory_text) end
end

-- A new coroutine gets the hook too, and pays for the instructions it may run unseen.
function host.create_coroutine(body)
  charge(INTERVAL)
  local thread = create(body)
  local _, _, interval = gethook()
  sethook(thread, hook, "", interval)
  return thread
end

-- Read-only tables -------------------------------------------------------------------------------

local real = setmetatable({}, { __mode = "k" }) -- what a read-only table shows, by the table
host.real = real
-- What getmetatable shows of a read-only table; of all others nothing.
host.shown_metatables = setmetatable({}, { __mode = "k" })
local READONLY = "Attempt to modify a readonly table"
host.READONLY = READONLY

local function refuse() error(READONLY, 2) end

-- An empty table that shows another one and lets nobody write to either; and a function that lets
-- it show yet another.
function host.protect(content)
  local behaviour = { __index = content, __newindex = refuse, __metatable = false }
  local shown = setmetatable({}, behaviour)
  real[shown] = content
  return shown, function(other) behaviour.__index, real[shown] = other, other end
end

-- Running ----------------------------------------------------------------------------------------

-- Adds where it happened, as scripts of the real server see it, skipping frames of this host.
local function locate(value)
  if type(value) ~= "table" then value = { err = "ERR " .. tostring(value) } end
  for level = 2, 12 do
    local info = getinfo(level, "Sl")
    if not info then break end
    if byte(info.source) ~= 61 then -- "=host" and "=[C]" are not the script
      rawset(value, "source", info.source)
      rawset(value, "line", info.currentline)
      break
    end
  end
  return value
end

local resets = {}
-- Something that has to start afresh with every script.
function host.on_reset(action) resets[#resets + 1] = action end

-- Runs `body` under the limits. Returns true and its value, or false and an error table.
function run(body, ...)
  spent, deadline, stopped, handed, unhurried = 0, clock() + limits.seconds, nil, 0, false
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

-- "C", "Lua" or "main": what kind of function it is.
function host.what(body) return getinfo(body, "S").what end

-- The byte code of a function, which nothing loads: Lua's own check of it can be deceived.
function host.dump(body)
  local info = getinfo(body, "S")
  if info.what == "C" or info.source == "=host" then error("unable to dump given function", 3) end
  local code = dump(body)
  charge_bytes(#code)
  return code
end

local PIECE = 2048

-- Lua's compiler takes the square of the length for some sources, and knows no hook: so it is given
-- the source in pieces, and the time is looked at before each.
local function read_source(source, name)
  if #source <= PIECE then return loadstring(source, name) end
  local at, late = 1, false
  local latest = clock() + limits.seconds
  if running then
    charge(floor(#source / 10))
    latest = deadline
  end
  local body, message = load(function()
    late = clock() > latest
    if late then error("it took too long to compile", 0) end
    at = at + PIECE
    return sub(source, at - PIECE, at - 1)
  end, name)
  if late and running then stop(limits.seconds_text) end
  return body, message
end

-- Source text to a function of the given environment; binary chunks are not source text.
function host.compile(source, name, environment)
  if byte(source) == 27 then
    return nil, sub(name, 2) .. ":1: unexpected symbol near 'char(27)'"
  end
  local body, message = read_source(source, name)
  if not body then return nil, message end
  return setfenv(loadstring(py.keep_frames(dump(body)), name), environment)
end

return host
