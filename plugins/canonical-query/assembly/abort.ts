// What the compiler calls where a program cannot go on, in a file of its own so that the module does
// not export it.

import { LOG_ERROR, log } from "./proxy";

/// Says where, and ends the call. The compiler may know no message and no file, whatever the types
/// say.
export function abort(message: string, file: string, line: u32, column: u32): void {
  const where = changetype<usize>(file) == 0 ? "?" : file;
  const what = changetype<usize>(message) == 0 ? "" : message;
  log(LOG_ERROR, `${where}:${line}:${column}: ${what}`);
  unreachable();
}
