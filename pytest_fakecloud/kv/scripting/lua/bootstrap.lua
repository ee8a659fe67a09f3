-- Loads the other files with the original globals, removes these from scripts, and returns the API.

local py, settings, sources = ...
local globals, load, exposed = {}, loadstring, _G
for name, value in pairs(_G) do globals[name] = value end

local function trusted(source, ...)
  local body = assert(load(source, "=host"))
  return setfenv(body, globals)(...)
end

local host = trusted(sources.host, py, settings)
host.null = newproxy(true)
local behaviour = getmetatable(host.null)
behaviour.__tostring = function() return "userdata: (nil)" end
behaviour.__metatable = false
trusted(sources.sandbox, host, trusted(sources.patterns, host))
local libraries = {}
for _, name in ipairs({ "bit", "cjson", "cmsgpack", "struct" }) do
  libraries[name] = trusted(sources[name], host)
end
local api = trusted(sources.redis, host, libraries)
for name in pairs(globals) do exposed[name] = nil end
return api
