// A plugin on proxy-wasm: gives each request's query its canonical form, so that a cache stores one
// copy of a page instead of one for every order of parameters and every campaign. Its configuration
// is the names to drop, one a line; without any, the usual trackers.

import "./abort";
import {
  CONTINUE, LOG_ERROR, REQUEST_HEADERS, allocate, configuration, header, log, setHeader,
} from "./proxy";
import { TRACKERS, canonical, parseNames } from "./query";

let dropped: string[] = TRACKERS;

export function proxy_abi_version_0_2_1(): void {}

export function proxy_on_memory_allocate(size: usize): usize {
  return allocate(size);
}

export function proxy_on_configure(context: u32, size: usize): bool {
  const names = parseNames(configuration(size));
  if (names === null) {
    log(LOG_ERROR, "configuration: each line must be a parameter's name, “*” only at its end");
    return false;
  }
  dropped = names.length > 0 ? names : TRACKERS;
  return true;
}

export function proxy_on_request_headers(context: u32, count: usize, endOfStream: bool): i32 {
  const target = header(REQUEST_HEADERS, ":path");
  if (target === null) return CONTINUE;
  const wanted = canonical(target, dropped);
  if (wanted != target && !setHeader(REQUEST_HEADERS, ":path", wanted)) {
    log(LOG_ERROR, "the path could not be set");
  }
  return CONTINUE;
}
