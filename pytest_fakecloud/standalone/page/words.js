// Command lines as words.
import {own} from "./dom.js";

// The name that has most letters of a word, of which two at most differ, whatever their order is; undefined without one.
export function nearest(word, names) {
  const unlike = (name) => { let rest = name; for (const sign of word) rest = rest.replace(sign, ""); return 2 * rest.length + word.length - name.length; };
  return names.filter((name) => unlike(name) <= Math.min(2, word.length - 2)).sort((one, other) => unlike(one) - unlike(other))[0];
}
// A byte that is not UTF-8 is a lone surrogate, as in Python.
export const byte = (hex) => String.fromCharCode(parseInt(hex, 16) + (parseInt(hex, 16) < 0x80 ? 0 : 0xdc00));
// Splits a line into words like redis-cli, with quotes and the escapes of double quotes.
const WORD = /(?:"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'])+/g, ESCAPED = {n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07"};
export function split(line) {
  const [unclosed] = line.replace(WORD, "").trim();
  if (unclosed) throw new Error(`The quote ${unclosed} is not closed.`);
  const plain_ = (text) => text.replace(/\\(?:x([0-9a-fA-F]{2})|(.))/g, (_, hex, letter) => hex ? byte(hex) : own(ESCAPED, letter) ?? letter);
  return (line.match(WORD) ?? []).map((word) => word.replace(/"((?:\\.|[^"\\])*)"|'([^']*)'/g, (_, double, single) => single ?? plain_(double)));
}
// In a word, a byte that is not UTF-8 is a lone surrogate, as in Python. Only a path can have such bytes, which end with a slash because the last word may be empty.
export const BYTE = /[\udc80-\udcff]/u;
export const hexOf = (letter) => (letter.charCodeAt(0) - 0xdc00).toString(16);
const inPath = (word) => [...word].map((letter) => BYTE.test(letter) ? `%${hexOf(letter)}` : encodeURIComponent(letter)).join("");
export const asRequest = (line) => line.some((word) => BYTE.test(word)) ? [`/${line.map(inPath).join("/")}/`] : ["/", line];
