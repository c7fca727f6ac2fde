// Typed arrays: the cells of Conway's game, and products of matrices.
function generation(old, next, size) {
    let alive = 0;
    for (let y = 1; y < size - 1; y++) {
        for (let x = 1; x < size - 1; x++) {
            const at = y * size + x;
            const around = old[at - size - 1] + old[at - size] + old[at - size + 1] + old[at - 1] +
                old[at + 1] + old[at + size - 1] + old[at + size] + old[at + size + 1];
            next[at] = around === 3 || (around === 2 && old[at]) ? 1 : 0;
            alive += next[at];
        }
    }
    return alive;
}

function multiply(a, b, result, size) {
    for (let i = 0; i < size; i++) {
        for (let j = 0; j < size; j++) {
            let sum = 0;
            for (let k = 0; k < size; k++) sum += a[i * size + k] * b[k * size + j];
            result[i * size + j] = sum;
        }
    }
}

const size = 512;
let cells = new Uint8Array(size * size), other = new Uint8Array(size * size), alive = 0;
for (let i = 0, state = 1; i < cells.length; i++) {
    state = (state * 48271) % 2147483647;
    cells[i] = state & 1;
}
for (let i = 0; i < 400; i++) {
    alive = generation(cells, other, size);
    [cells, other] = [other, cells];
}

const order = 320;
const a = new Float64Array(order * order).map((_, i) => i % 11 - 5);
const b = new Float64Array(order * order).map((_, i) => i % 7 - 3);
const product = new Float64Array(order * order);
for (let i = 0; i < 8; i++) multiply(a, b, product, order);
console.log(alive, product.reduce((sum, value, i) => sum + value * (i % 5), 0));
