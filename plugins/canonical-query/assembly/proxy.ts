// What this plugin needs of proxy-wasm 0.2.1: the host's functions, and memory and text as the host
// sees them. Written after the specification; leaves the callbacks to the plugin.

export const CONTINUE: i32 = 0;
export const LOG_ERROR: i32 = 4;

const OK: i32 = 0;
const REQUEST_HEADERS: i32 = 0;
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

/// A request field's value; `null`: there is none.
export function requestHeader(name: string): string | null {
  const n = String.UTF8.encode(name);
  const status = proxy_get_header_map_value(
    REQUEST_HEADERS, changetype<usize>(n), n.byteLength, result, result + 4);
  return status == OK ? take() : null;
}

/// Makes `value` a request field's only value; whether the host agreed.
export function setRequestHeader(name: string, value: string): bool {
  const n = String.UTF8.encode(name);
  const v = String.UTF8.encode(value);
  return proxy_replace_header_map_value(
    REQUEST_HEADERS, changetype<usize>(n), n.byteLength, changetype<usize>(v), v.byteLength) == OK;
}

/// The text that the host has left at `result`; frees the host's copy.
function take(): string {
  const at = <usize>load<u32>(result);
  const text = String.UTF8.decodeUnsafe(at, load<u32>(result, 4));
  if (at != 0) heap.free(at);
  return text;
}
