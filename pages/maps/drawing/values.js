// The values of the cells, from the arrays that Python sends, and the facts shown about one cell.

const TYPES = { f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u1: Uint8Array };

function decode({ dtype, bdata, values }) {
  if (values) return values;
  const text = atob(bdata), bytes = new Uint8Array(text.length); // from() with a function takes twenty times as long
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  return new TYPES[dtype](bytes.buffer);
}

// One element per cell: its values by cell number, and its position in the plane by `at`
function elements({ rows, columns, step, width, blocks, after }, arrays, prefix) {
  const own = (name) => arrays[prefix + name], inside = own("inside");
  const at = (n) => {
    const i = inside ? inside[n] : 0;
    return [rows[0] + Math.floor(n / width) * step[0] + Math.floor(i / step[1]), columns[0] + (n % width) * step[1] + i % step[1]];
  };
  // scales and zero points: one for all, one per block of the plane, or one per cell
  const array = (name) => (blocks ? arrays[name] : own(name));
  const parameter = (name) => {
    const every = array(name);
    if (every.length === 1) return () => every[0];
    if (!blocks) return (n) => every[n];
    return (n) => { const [row, column] = at(n); return every[Math.floor((row - blocks[3]) / blocks[0]) * blocks[2] + Math.floor(column / blocks[1])]; };
  };
  const x = own("x"), codes = own("codes"), error = (values) => x?.map((v, n) => (after ? values[n] - v : v - values[n]));
  const scale = codes && parameter("scale"), zero_point = codes && parameter("zero_point");
  const dequantized = () => own("dequantized") ?? multiplied(own("values") ?? codes, scale, zero_point, array("scale").length + array("zero_point").length === 2);
  // computed where they are needed: of an error map that shows an RMS, only what is under the pointer is
  return {
    at, x, codes, scale, zero_point,
    get dequantized() { return kept(this, "dequantized", dequantized()); },
    get error() { return kept(this, "error", error(this.dequantized)); },
  };
}

function kept(object, name, value) {
  Object.defineProperty(object, name, { value });
  return value;
}

// (q - z) · s as in Python: a product of two float32 is exact in JavaScript's float64, so one rounding to float32 gives the same
// bits; this halves the data to send. `alike`: whether all have one scale and one zero point
function multiplied(values, scale, zero_point, alike) {
  const found = new Float32Array(values.length), s = scale(0), z = Math.fround(zero_point(0));
  if (alike) for (let n = 0; n < found.length; n++) found[n] = Math.fround(values[n] - z) * s;
  else for (let n = 0; n < found.length; n++) found[n] = Math.fround(values[n] - Math.fround(zero_point(n))) * scale(n);
  return found;
}

// What the cell that contains an element shows on a map: position and values of the shown element
function read(state, [row, column, map]) {
  const { data } = state, name = data.maps[map], of = elementsOf(state, name);
  const n = Math.floor((row - data.rows[0]) / data.step[0]) * data.width + Math.floor((column - data.columns[0]) / data.step[1]);
  return { shown: of.at(n), x: of.x?.[n], q: of.codes?.[n], xHat: of.dequantized[n], error: of.error?.[n], scale: of.scale?.(n), z: of.zero_point?.(n), other: name === "error" ? state.other?.[n] : undefined, rms: name === "error" ? state.rms?.[n] : undefined };
}

// The elements that a map shows; for a reduced tensor the error map shows different ones
function elementsOf(state, name) {
  return name === "error" ? state.worst : state.largest;
}

// The full index of an element of the plane
function indexOf({ data }, [row, column]) {
  const place = { row, column };
  return data.index.map((part) => place[part] ?? part);
}

// [name, value] pairs of a cell, first the full index of its element
function facts(state, cursor) {
  const v = read(state, cursor), index = indexOf(state, v.shown).join(", ");
  const [x, xHat, error] = state.data.symbols, usual = v.x === undefined && v.q === undefined && xHat === "x̂";
  const known = [[x, v.x], ["q", v.q], [usual ? "value" : xHat, v.xHat], [error, v.error], ["scale", v.scale], ["zero point", v.z], ["error of pinned", v.other], ["RMS of the cell", v.rms]];
  return [["element", `(${index})`], ...known.filter(([, value]) => value !== undefined).map(([name, value]) => [name, ["q", "zero point"].includes(name) ? value : exact(value)])];
}

// The shortest decimal that parses back to the same float32
function exact(value) {
  if (!Number.isFinite(value)) return String(value);
  for (let digits = 1; digits < 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(Number(value.toPrecision(9)));
}
