// Addresses in the fragment: #/fake/kv_server/keys/user%3A1?search=user

export function read(hash = location.hash) {
  const [place, search = ""] = hash.replace(/^#\/?/, "").split("?");
  return {parts: place.split("/").filter(Boolean).map(decoded), raw: place.split("/").filter(Boolean), query: Object.fromEntries(new URLSearchParams(search))};
}
function decoded(part) { try { return decodeURIComponent(part); } catch { return part; } }

// Encodes `parts`. Pass an id that the server has already encoded as {raw: id}.
export function link(parts, values = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value != null)).toString();
  return "#/" + parts.map((part) => part.raw ?? encodeURIComponent(part)).join("/") + (query ? "?" + query : "");
}

export function go(address, {replace = false} = {}) {
  if (address === location.hash) return;
  if (!replace) { location.hash = address; return; }
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
