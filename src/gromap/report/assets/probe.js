"use strict";
// One row or column of the plan as shares of its mass: where a point goes, or where it comes from.

const NEAR = 0.05; // of the diagonal
const DECADES = 3; // of the heat colors

// Shares of the mass of point i of one side (0: source) among the points of the other; counts: points of both sides.
async function conditional(side, i, counts, factors) {
  return factors ? fromFactors(side, i, counts[1 - side]) : fromEntries(side, i, counts);
}

// exp(q_i·k_j + v_j) / Σ_j exp(q_i·k_j + v_j)
async function fromFactors(side, i, count) {
  const [q, k, v] = await Promise.all((side === 0 ? ["q", "k", "v"] : ["k", "q", "u"]).map(block));
  const rank = k.length / count;
  const mine = Float64Array.from(q.subarray(i * rank, (i + 1) * rank));
  const shares = new Float64Array(count);
  let top = -Infinity;
  for (let j = 0, at = 0; j < count; j++) {
    let log = v[j];
    for (let r = 0; r < rank; r++, at++) log += mine[r] * k[at];
    shares[j] = log;
    if (log > top) top = log;
  }
  let mass = 0;
  for (let j = 0; j < count; j++) mass += shares[j] = Math.exp(shares[j] - top);
  for (let j = 0; j < count; j++) shares[j] /= mass;
  return shares;
}

// The largest entries alone: they sum to less than 1.
async function fromEntries(side, i, counts) {
  const name = side === 0 ? "row" : "column";
  const [values, places] = await Promise.all([block(name + "-shares"), block(name + "-places")]);
  const kept = values.length / counts[side];
  const shares = new Float64Array(counts[1 - side]);
  for (let e = i * kept; e < (i + 1) * kept; e++) shares[places[e]] = values[e];
  return shares;
}

// What the readout says of these shares, on points (xyz after xyz) with a diagonal; null where there is no mass.
function summary(shares, points, diagonal) {
  let best = 0;
  let mass = 0;
  let entropy = 0;
  const sum = [0, 0, 0];
  for (let j = 0; j < shares.length; j++) {
    const p = shares[j];
    if (!(p > 0)) continue;
    if (p > shares[best]) best = j;
    mass += p;
    entropy -= p * Math.log(p);
    for (let c = 0; c < 3; c++) sum[c] += p * points[3 * j + c];
  }
  if (mass === 0) return null;
  const mean = sum.map((s) => s / mass);
  const match = points.subarray(3 * best, 3 * best + 3);
  const reach = (NEAR * diagonal) ** 2;
  let near = 0;
  let variance = 0;
  for (let j = 0; j < shares.length; j++) {
    if (!(shares[j] > 0)) continue;
    variance += shares[j] * distance2(points, j, mean);
    if (distance2(points, j, match) <= reach) near += shares[j];
  }
  const spread = Math.sqrt(variance / mass) / diagonal;
  return { best, mass, share: shares[best], near, spread, points: mass * Math.exp(entropy / mass) };
}

function distance2(points, j, other) {
  return (points[3 * j] - other[0]) ** 2 + (points[3 * j + 1] - other[1]) ** 2 + (points[3 * j + 2] - other[2]) ** 2;
}

// Heat colors of shares: the largest at the hot end, a thousandth of it at the cold one.
function heat(shares, best, ramp) {
  const colors = new Uint8Array(3 * shares.length);
  const scale = 1 / shares[best];
  const cold = 10 ** -DECADES;
  for (let j = 0; j < shares.length; j++) {
    const share = shares[j] * scale;
    const at = share > cold ? (1 + Math.log10(share) / DECADES) * (ramp.length - 1) : 0;
    const k = Math.min(Math.floor(at), ramp.length - 2);
    for (let c = 0; c < 3; c++) colors[3 * j + c] = ramp[k][c] + (at - k) * (ramp[k + 1][c] - ramp[k][c]);
  }
  return colors;
}
