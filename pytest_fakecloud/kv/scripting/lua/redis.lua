-- The redis table, conversion of commands and replies, and the functions that the engine calls.
local host, libraries = ...

local error, next, pairs, rawget, select, setmetatable, tonumber, tostring, type, unpack =
  host.error, next, pairs, rawget, select, setmetatable, tonumber, tostring, type, unpack
local find, lower, match, sub = string.find, string.lower, string.match, string.sub
local py, limits, run, protect, charge =
  host.py, host.limits, host.run, host.protect, host.charge
local hand_over, to_integer = host.hand_over, host.to_integer

local resp = 2 -- the protocol version set by redis.setresp
local deepest = 1 -- maximum number of slots of Lua's stack for the current reply
local CHUNK = 1000 -- number of values passed in one call

-- Replies ----------------------------------------------------------------------------------------

local to_reply

-- Returns whether a number is a negative zero, which Python receives as the integer 0.
local function has_lost_sign(number) return number == 0 and 1 / number < 0 end

local function to_list(items, count)
  if count <= CHUNK then return py.list(unpack(items, 1, count)) end
  local list = py.list()
  for first = 1, count, CHUNK do
    py.extend(list, unpack(items, first, first + CHUNK - 1 < count and first + CHUNK - 1 or count))
  end
  return list
end

-- A map or a set takes three slots of Lua's stack, because a real server keeps that many values on
-- the stack during the conversion. The key of a map takes four.
local function flatten(content, used, with_values)
  local items, count = {}, 0
  for key, value in next, content do
    count = count + 1
    items[count] = to_reply(key, with_values and used + 4 or used + 3)
    if with_values then
      count = count + 1
      items[count] = to_reply(value, used + 3)
    end
  end
  charge(count * 10)
  return to_list(items, count)
end

-- Returns the text of an error or a status, which ends at a zero byte, as in C.
local function up_to_zero(text) return match(text, "^%Z*") end

-- Returns whether an error came from a command, so that the statistics already include it.
local function is_counted(failure) return rawget(failure, "ignore_error_stats_update") == true end

local function table_to_reply(value, used)
  value = host.real[value] or value
  local field = rawget(value, "err")
  if type(field) == "string" then
    hand_over(#field)
    return py.failure(up_to_zero(field), is_counted(value))
  end
  field = rawget(value, "ok")
  if type(field) == "string" then
    hand_over(#field)
    return py.status(up_to_zero(field))
  end
  field = rawget(value, "double")
  if type(field) == "number" then return py.double(has_lost_sign(field) and "-0" or field) end
  field = rawget(value, "map")
  if type(field) == "table" then return py.map(flatten(field, used, true)) end
  field = rawget(value, "set")
  if type(field) == "table" then return py.set(flatten(field, used, false)) end
  field = rawget(value, "big_number")
  if type(field) == "string" then
    hand_over(#field)
    return py.big_number(field)
  end
  field = rawget(value, "verbatim_string")
  if type(field) == "table" then
    local text, format = rawget(field, "string"), rawget(field, "format")
    if type(text) == "string" and type(format) == "string" then
      hand_over(#text + #format)
      return py.verbatim(text, format)
    end
  end
  local items, count = {}, 0
  while true do
    local item = rawget(value, count + 1)
    if item == nil then break end
    count = count + 1
    items[count] = to_reply(item, used + 1)
  end
  charge(count * 10)
  return to_list(items, count)
end

function to_reply(value, used)
  if used >= deepest then return py.failure("ERR reached lua stack limit") end
  local kind = type(value)
  if kind == "string" then
    hand_over(#value)
    return value
  end
  if kind == "number" then
    local integer = to_integer(value)
    if integer ~= value then py.note_cut(value, integer) end
    return integer
  end
  if kind == "boolean" then
    if resp == 3 and limits.returns_booleans then return py.boolean(value) end
    return value and 1 or nil
  end
  if kind == "table" then return table_to_reply(value, used) end
  return nil
end

-- Calling commands -------------------------------------------------------------------------------

local STATUS, FAILED, REFUSED, BUG = 1, 2, 3, 4

local function receive(protected, value, kind)
  if kind == nil then
    if value == nil and resp == 2 then return false end
    return value
  end
  if kind == STATUS then return { ok = value } end
  if kind == BUG then error(value, 0) end
  local failure = { err = value }
  if kind == FAILED then failure.ignore_error_stats_update = true end
  if protected then return failure end
  error(failure, 0)
end

-- Charges for the words of a command. Returns whether one of them is a negative zero. Servers that
-- write numbers with few digits write it as 0.
local function weigh(...)
  charge(100)
  local count = select("#", ...)
  local words = count > 20 and { ... }
  local bytes, lost_sign = 0, false
  for index = 1, count do
    local word = words and words[index] or (select(index, ...))
    if type(word) == "string" then
      bytes = bytes + #word
    elseif word == 0 and not limits.short_numbers and has_lost_sign(word) then
      lost_sign = true
    end
  end
  hand_over(bytes)
  return lost_sign
end

local WIDE = 1000 -- maximum number of arguments passed individually; more are passed in a table

local function ask(asked, asked_widely, ...)
  local count = select("#", ...)
  if weigh(...) then
    local words = { ... }
    for index = 1, count do
      if words[index] == 0 and has_lost_sign(words[index]) then words[index] = "-0" end
    end
    return asked_widely(words, count)
  end
  if count > WIDE then return asked_widely({ ... }, count) end
  return asked(...)
end

local function call(...) return receive(false, ask(py.call, py.call_widely, ...)) end

local function protected_call(...) return receive(true, ask(py.call, py.call_widely, ...)) end

local function raise(text) error({ err = text }, 0) end

-- The other functions ----------------------------------------------------------------------------

-- Converts an argument to an integer as the server does: strings that contain a number count as
-- numbers, fractions are cut off, and every other value is 0.
local function as_integer(value)
  local kind = type(value)
  return to_integer((kind == "number" or kind == "string") and tonumber(value) or 0)
end

local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_ALL = 3, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_NONE = 0,
  REDIS_VERSION = limits.version, REDIS_VERSION_NUM = limits.version_number,
  call = call, pcall = protected_call,
}

local WRONG_FIELD = "ERR wrong number or type of arguments"

function redis.error_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then return { err = WRONG_FIELD } end
  text = up_to_zero(text)
  if sub(text, 1, 1) == "-" then text = sub(text, 2) end
  if not find(text, " ", 1, true) then text = "ERR " .. text end
  return { err = text }
end

function redis.status_reply(...)
  local text = ...
  if select("#", ...) ~= 1 or type(text) ~= "string" then return { err = WRONG_FIELD } end
  return { ok = text }
end

function redis.sha1hex(...)
  if select("#", ...) ~= 1 then raise("ERR wrong number of arguments") end
  local value = ...
  if type(value) == "number" then value = value .. "" end
  if type(value) == "string" then host.charge_bytes(#value * 4) end
  return py.sha1hex(type(value) == "string" and value or "")
end

function redis.log(...)
  local level = ...
  if select("#", ...) < 2 then raise("ERR redis.log() requires two arguments or more.") end
  if type(level) ~= "number" and not (type(level) == "string" and tonumber(level)) then
    raise("ERR First argument must be a number (log level).")
  end
  level = as_integer(level)
  if level < 0 or level > 3 then raise("ERR Invalid debug level.") end
end

function redis.setresp(...)
  if select("#", ...) ~= 1 then raise("ERR redis.setresp() requires one argument.") end
  local version = as_integer((...))
  if version ~= 2 and version ~= 3 then raise("ERR RESP version must be 2 or 3.") end
  resp = version
  py.setresp(version)
end

function redis.set_repl(...)
  if select("#", ...) ~= 1 then raise("ERR redis.set_repl() requires two arguments.") end
  local flags = as_integer((...))
  if flags < 0 or flags > 3 then
    raise("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
  end
end

function redis.acl_check_cmd(...)
  local allowed, kind = ask(py.may_call, py.may_call_widely, ...)
  if kind then raise(allowed) end
  return allowed
end

local for_eval = {}
for name, value in pairs(redis) do for_eval[name] = value end
function for_eval.breakpoint() return false end
function for_eval.debug() end
function for_eval.replicate_commands() return true end

host.on_reset(function() resp = 2 end)

-- Evaluating -------------------------------------------------------------------------------------

-- On a real server, scripts and functions run in two Lua states, so each has its own settings.
local eval_cjson, eval_settings = libraries.cjson()
local function_cjson, function_settings = libraries.cjson()
libraries.cjson = nil

local function with_libraries(api, cjson)
  local content =
    { redis = api, server = limits.has_server and api or nil, cjson = protect(cjson) }
  for library, functions in pairs(libraries) do content[library] = protect(functions) end
  return content
end

local eval_shown, eval_globals = host.new_globals(with_libraries(protect(for_eval), eval_cjson))

local api = { eval_settings = eval_settings, function_settings = function_settings }

-- Compiles a script. Returns the function, or nil and the compiler's message.
function api.compile(source)
  local body, message = host.compile(source, "@user_script", eval_shown)
  return body, message
end

-- Converts the result of run(): true and the reply, or false, the message, whether it is counted,
-- source and line.
local function finish(ok, value)
  if ok then return true, value end
  local text = rawget(value, "err")
  if type(text) == "number" then text = text .. "" end
  if type(text) ~= "string" then text = "ERR unknown error" end
  return false, up_to_zero(text), is_counted(value), rawget(value, "source"), rawget(value, "line")
end

local function keys_and_arguments(count, ...)
  if count == 0 then return {}, { ... } end
  local all, keys, arguments = { ... }, {}, {}
  for index = 1, count do keys[index] = all[index] end
  for index = count + 1, #all do arguments[index - count] = all[index] end
  return keys, arguments
end

local function reply_of(value)
  if type(value) == "table" then deepest = py.levels() end
  return to_reply(value, 0)
end

function api.evaluate(script, count, ...)
  eval_globals.KEYS, eval_globals.ARGV = keys_and_arguments(count, ...)
  return finish(run(function() return reply_of(script()) end, limits.seconds))
end

-- Like evaluate(), but with keys and arguments in tables, because the number of arguments is
-- limited.
function api.evaluate_tables(script, keys, arguments)
  eval_globals.KEYS, eval_globals.ARGV = keys, arguments
  return finish(run(function() return reply_of(script()) end, limits.seconds))
end

function api.call_function(callback, keys, arguments)
  return finish(run(function() return reply_of(callback(keys, arguments)) end, limits.seconds))
end

-- Libraries --------------------------------------------------------------------------------------

local registered -- the functions registered by the library that is being loaded, otherwise nil

local UNKNOWN_ARGUMENT = "ERR unknown argument given to redis.register_function"

local function named_arguments(given)
  local found = {}
  for key, value in pairs(given) do
    if type(key) ~= "string" then
      if type(key) == "number" then raise(UNKNOWN_ARGUMENT) end
      raise("ERR named argument key given to redis.register_function is not a string")
    end
    if key == "function_name" then
      if type(value) ~= "string" then
        raise("ERR function_name argument given to redis.register_function must be a string")
      end
    elseif key == "description" then
      if type(value) ~= "string" then
        raise("ERR description argument given to redis.register_function must be a string")
      end
    elseif key == "callback" then
      if type(value) ~= "function" then
        raise("ERR callback argument given to redis.register_function must be a function")
      end
    elseif key == "flags" then
      if type(value) ~= "table" then
        raise("ERR flags argument to redis.register_function must be a table representing"
          .. " function flags")
      end
    else
      raise(UNKNOWN_ARGUMENT)
    end
    found[key] = value
  end
  if not found.function_name then
    raise("ERR redis.register_function must get a function name argument")
  end
  if not found.callback then raise("ERR redis.register_function must get a callback argument") end
  return found
end

local function read_flags(flags)
  local found = {}
  for index = 1, #flags do
    local flag = rawget(flags, index)
    local known = type(flag) == "string" and limits.flags[flag]
    if not known then raise("ERR unknown flag given") end
    found[index] = flag
  end
  return found
end

local function register_function(...)
  if not registered then
    raise("ERR redis.register_function can only be called on FUNCTION LOAD command")
  end
  local count, first, second = select("#", ...), ...
  if count < 1 or count > 2 then
    raise("ERR wrong number of arguments to redis.register_function")
  end
  local found
  if count == 1 then
    if type(first) ~= "table" then
      raise("ERR calling redis.register_function with a single argument is only applicable to"
        .. " Lua table (representing named arguments).")
    end
    found = named_arguments(first)
  else
    if type(first) == "number" then first = first .. "" end
    if type(first) ~= "string" then
      raise("ERR first argument to redis.register_function must be a string")
    end
    if type(second) ~= "function" then
      raise("ERR second argument to redis.register_function must be a function")
    end
    found = { function_name = first, callback = second }
  end
  local name = found.function_name
  if not find(name, "^[%w_]+$") then
    raise("ERR Library names can only contain letters, numbers, or underscores(_) and must be at"
      .. " least one character long")
  end
  -- Redis 7.0 accepts names that differ only in case, but crashes when the library is deleted.
  if registered[lower(name)] then raise("ERR Function already exists in the library") end
  local flags = read_flags(found.flags or {})
  registered[lower(name)] = true
  registered[#registered + 1] =
    py.list(name, found.callback, found.description, py.list(unpack(flags)))
end

local function_shown, function_globals, choose =
  host.new_globals(with_libraries(protect(redis), function_cjson))

-- The globals while a library is loaded: redis.register_function() and a few harmless fields.
local load_api = protect(setmetatable({
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3, log = redis.log,
  REDIS_VERSION = redis.REDIS_VERSION, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM,
  register_function = register_function,
}, host.strict))
local load_globals = setmetatable(
  { redis = load_api, server = limits.has_server and load_api or nil }, host.strict)

-- Loads a library. Returns true and the registered functions, or false and the error, or nil and
-- the compiler's message.
function api.load_library(source)
  local body, message = host.compile(source, "@user_function", function_shown)
  if not body then return nil, message end
  registered = {}
  choose(load_globals)
  local ok, value = run(body, limits.seconds_to_load)
  choose(function_globals)
  local found = registered
  registered = nil
  if not ok then return finish(false, value) end
  return true, to_list(found, #found)
end

return api
