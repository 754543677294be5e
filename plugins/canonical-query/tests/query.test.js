// The logic alone, run by Node: `npm test`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { TRACKERS, canonical, parseNames } from "../node_modules/.test/query.js";

test("queries have one form", () => {
  const check = (target, expected, dropped = ["utm_*", "x"]) =>
    assert.equal(canonical(target, dropped), expected, target);
  check("/a", "/a");
  check("/a?", "/a");
  check("/a?b=1&a=2", "/a?a=2&b=1");
  check("/a?b=2&a&b=1", "/a?a&b=2&b=1");
  check("/a?x=1&utm_source=n&utm_=1&utm=2&xy", "/a?utm=2&xy");
  check("/a?x=1", "/a");
  check("/a?&&c&&b", "/a?b&c");
  check("/a?b=%26&a=b?c=d", "/a?a=b?c=d&b=%26");
  check("/a?é=1&a=2", "/a?é=1&a=2");
  check("/a?gclid=1&q=2", "/a?q=2", TRACKERS.value);
});

test("the configuration is a list of names", () => {
  assert.deepEqual(parseNames(""), []);
  assert.deepEqual(parseNames("# trackers\n ref \r\nutm_*\n\n"), ["ref", "utm_*"]);
  for (const bad of ["a b", "*", "*x", "a*b", "a=b", "a&b", "a**"]) {
    assert.equal(parseNames(bad), null, bad);
  }
});
