// What most plugins need of proxy-wasm 0.2.1: the host's functions, and memory and text as the host
// sees them. Written after the specification; leaves the callbacks to the plugin.

export const CONTINUE: i32 = 0;
export const PAUSE: i32 = 1;

export const LOG_INFO: i32 = 2;
export const LOG_WARN: i32 = 3;
export const LOG_ERROR: i32 = 4;

export const REQUEST_HEADERS: i32 = 0;
export const RESPONSE_HEADERS: i32 = 2;

const OK: i32 = 0;
const PLUGIN_CONFIGURATION: i32 = 7;

// @ts-ignore: decorator
@external("env", "proxy_log")
declare function proxy_log(level: i32, message: usize, size: usize): i32;

// @ts-ignore: decorator
@external("env", "proxy_get_buffer_bytes")
declare function proxy_get_buffer_bytes(
  buffer: i32, start: usize, sizeMax: usize, value: usize, valueSize: usize): i32;

// @ts-ignore: decorator
@external("env", "proxy_get_header_map_value")
declare function proxy_get_header_map_value(
  map: i32, name: usize, nameSize: usize, value: usize, valueSize: usize): i32;

// @ts-ignore: decorator
@external("env", "proxy_replace_header_map_value")
declare function proxy_replace_header_map_value(
  map: i32, name: usize, nameSize: usize, value: usize, valueSize: usize): i32;

// @ts-ignore: decorator
@external("env", "proxy_remove_header_map_value")
declare function proxy_remove_header_map_value(map: i32, name: usize, nameSize: usize): i32;

// @ts-ignore: decorator
@external("env", "proxy_send_local_response")
declare function proxy_send_local_response(
  status: u32, details: usize, detailsSize: usize, body: usize, bodySize: usize,
  fields: usize, fieldsSize: usize, grpcStatus: i32): i32;

/// Where the host writes an address and a size.
const result = memory.data(8);

/// Memory for the host to write into; `take` gives it back. Not the garbage collector's, which does
/// not know the host's pointers.
export function allocate(size: usize): usize {
  return heap.alloc(size);
}

export function log(level: i32, message: string): void {
  const text = String.UTF8.encode(message);
  proxy_log(level, changetype<usize>(text), text.byteLength);
}

/// The plugin's configuration, as text.
export function configuration(size: usize): string {
  if (size == 0) return "";
  if (proxy_get_buffer_bytes(PLUGIN_CONFIGURATION, 0, size, result, result + 4) != OK) return "";
  return take();
}

/// A field's value, of the request or the response; `null`: there is none.
export function header(map: i32, name: string): string | null {
  const n = String.UTF8.encode(name);
  const status = proxy_get_header_map_value(
    map, changetype<usize>(n), n.byteLength, result, result + 4);
  return status == OK ? take() : null;
}

/// Makes `value` a field's only value; whether the host agreed.
export function setHeader(map: i32, name: string, value: string): bool {
  const n = String.UTF8.encode(name);
  const v = String.UTF8.encode(value);
  return proxy_replace_header_map_value(
    map, changetype<usize>(n), n.byteLength, changetype<usize>(v), v.byteLength) == OK;
}

/// Takes a field away; whether the host agreed.
export function removeHeader(map: i32, name: string): bool {
  const n = String.UTF8.encode(name);
  return proxy_remove_header_map_value(map, changetype<usize>(n), n.byteLength) == OK;
}

/// Answers the request in place of the application; the callback then returns `PAUSE`.
export function answer(status: u32, contentType: string, text: string): bool {
  const name = String.UTF8.encode("content-type");
  const value = String.UTF8.encode(contentType);
  const body = String.UTF8.encode(text);
  // A map: the count of its pairs, their lengths, then each name and value with a zero behind it.
  const size = 12 + name.byteLength + 1 + value.byteLength + 1;
  const fields = new ArrayBuffer(size);
  const at = changetype<usize>(fields);
  store<u32>(at, 1);
  store<u32>(at, name.byteLength, 4);
  store<u32>(at, value.byteLength, 8);
  memory.copy(at + 12, changetype<usize>(name), name.byteLength);
  memory.copy(at + 13 + name.byteLength, changetype<usize>(value), value.byteLength);
  return proxy_send_local_response(
    status, 0, 0, changetype<usize>(body), body.byteLength, at, size, -1) == OK;
}

/// The text that the host has left at `result`; frees the host's copy.
function take(): string {
  const at = <usize>load<u32>(result);
  const text = String.UTF8.decodeUnsafe(at, load<u32>(result, 4));
  if (at != 0) heap.free(at);
  return text;
}
