// The canonical form of a path with a query: knows no proxy.

/// What is dropped unless configured: parameters that tell a page where its visitor came from, and
/// change nothing about the page. A name that ends with “*” stands for all that begin like it.
export const TRACKERS: string[] = [
  "utm_*", "fbclid", "gclid", "dclid", "gbraid", "wbraid", "msclkid", "mc_cid", "mc_eid", "igshid",
];

/// `target` without the parameters named in `dropped`, the others sorted by name. Parameters of one
/// name keep their order, and none is decoded. What is not ASCII stays as it is: it may be no UTF-8,
/// and then its bytes are lost already.
export function canonical(target: string, dropped: string[]): string {
  const at = target.indexOf("?");
  if (at < 0 || !isAscii(target)) return target;
  const path = target.substring(0, at);
  const kept: string[] = [];
  const parameters = target.substring(at + 1).split("&");
  for (let i = 0; i < parameters.length; i++) {
    const parameter = parameters[i];
    if (parameter.length > 0 && !isDropped(nameOf(parameter), dropped)) kept.push(parameter);
  }
  sortByName(kept);
  return kept.length == 0 ? path : path + "?" + kept.join("&");
}

/// The names in a configuration, one a line; `null`: a line is no name.
export function parseNames(text: string): string[] | null {
  const names: string[] = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i].trim();
    if (line.length == 0 || line.startsWith("#")) continue;
    const star = line.indexOf("*");
    if (line.includes(" ") || line.includes("&") || line.includes("=")) return null;
    // A star alone would drop everything.
    if (star == 0 || (star > 0 && star != line.length - 1)) return null;
    names.push(line);
  }
  return names;
}

function isAscii(text: string): bool {
  for (let i = 0; i < text.length; i++) {
    if (text.charCodeAt(i) > 0x7f) return false;
  }
  return true;
}

function nameOf(parameter: string): string {
  const at = parameter.indexOf("=");
  return at < 0 ? parameter : parameter.substring(0, at);
}

function isDropped(name: string, dropped: string[]): bool {
  for (let i = 0; i < dropped.length; i++) {
    const rule = dropped[i];
    const isPrefix = rule.endsWith("*");
    if (isPrefix ? name.startsWith(rule.substring(0, rule.length - 1)) : name == rule) return true;
  }
  return false;
}

/// Insertion sort: stable, which `Array#sort` is not, and fast where little is out of order.
function sortByName(parameters: string[]): void {
  for (let i = 1; i < parameters.length; i++) {
    const parameter = parameters[i];
    const name = nameOf(parameter);
    let at = i;
    while (at > 0 && nameOf(parameters[at - 1]) > name) {
      parameters[at] = parameters[at - 1];
      at--;
    }
    parameters[at] = parameter;
  }
}
