// {{name}}: a Weir plugin on proxy-wasm. It adds a field to every response and answers /{{name}}
// itself; put what you need in its place. The server calls the functions that are exported here.

import "./abort";
import {
  CONTINUE, LOG_INFO, PAUSE, REQUEST_HEADERS, RESPONSE_HEADERS, allocate, answer, configuration,
  header, log, setHeader,
} from "./proxy";

// Global state lives as long as the module's instance, of which there are several.
let greeting = "Hello from {{name}}";

export function proxy_abi_version_0_2_1(): void {}

export function proxy_on_memory_allocate(size: usize): usize {
  return allocate(size);
}

/// Reads the configuration: here, the greeting itself. False: it is wrong, do not deploy.
export function proxy_on_configure(context: u32, size: usize): bool {
  if (size > 0) greeting = configuration(size);
  log(LOG_INFO, "configured");
  return true;
}

export function proxy_on_request_headers(context: u32, count: usize, endOfStream: bool): i32 {
  if (header(REQUEST_HEADERS, ":path") != "/{{name}}") return CONTINUE;
  answer(200, "text/plain; charset=utf-8", greeting + "\n");
  return PAUSE;
}

export function proxy_on_response_headers(context: u32, count: usize, endOfStream: bool): i32 {
  setHeader(RESPONSE_HEADERS, "x-plugin", "{{name}}");
  return CONTINUE;
}
