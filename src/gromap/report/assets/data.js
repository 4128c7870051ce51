"use strict";
// Arrays of the page: base64, deflated, the bytes in planes (payload.py). Each is read once, when it is asked for.

const TYPES = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };
const read = new Map();

function block(name) {
  if (!read.has(name)) read.set(name, decode(document.getElementById("block-" + name)));
  return read.get(name);
}

function hasBlock(name) {
  return document.getElementById("block-" + name) !== null;
}

async function decode(element) {
  const inflated = new Blob([fromBase64(element.textContent)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(inflated).arrayBuffer());
  const type = TYPES[element.dataset.type];
  const size = type.BYTES_PER_ELEMENT;
  if (size === 1) return planes;
  const count = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let b = 0; b < size; b++) {
    for (let i = 0, from = b * count, to = b; i < count; i++, from++, to += size) bytes[to] = planes[from];
  }
  return new type(bytes.buffer);
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}
