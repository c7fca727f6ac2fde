// Planets that attract each other: floating-point arithmetic on fields of objects.
class Body {
    constructor(mass, position, velocity) {
        this.mass = mass;
        [this.x, this.y, this.z] = position;
        [this.vx, this.vy, this.vz] = velocity;
    }
}

function step(bodies, time) {
    for (let i = 0; i < bodies.length; i++) {
        const a = bodies[i];
        for (let j = i + 1; j < bodies.length; j++) {
            const b = bodies[j];
            const dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
            const square = dx * dx + dy * dy + dz * dz + 0.01;
            const force = time / (square * Math.sqrt(square));
            a.vx -= dx * b.mass * force, a.vy -= dy * b.mass * force, a.vz -= dz * b.mass * force;
            b.vx += dx * a.mass * force, b.vy += dy * a.mass * force, b.vz += dz * a.mass * force;
        }
    }
    for (const body of bodies) {
        body.x += time * body.vx, body.y += time * body.vy, body.z += time * body.vz;
    }
}

const bodies = [];
for (let i = 0; i < 12; i++) {
    bodies.push(new Body(1 + i % 3, [i, i * i % 7, i * 3 % 5], [i % 2 - 0.5, 0.1 * i % 1, 0.25]));
}
for (let i = 0; i < 600000; i++) step(bodies, 0.0001);
console.log(bodies.map((body) => body.x.toFixed(6)).join(" "));
