/** Planets that attract each other: floating-point arithmetic on fields of objects. */
final class Planets {
    private final double mass;
    private double x, y, z, vx, vy, vz;

    private Planets(int i) {
        mass = 1 + i % 3;
        x = i;
        y = i * i % 7;
        z = i * 3 % 5;
        vx = i % 2 - 0.5;
        vy = 0.1 * i % 1;
        vz = 0.25;
    }

    private static void step(Planets[] bodies, double time) {
        for (int i = 0; i < bodies.length; i++) {
            Planets a = bodies[i];
            for (int j = i + 1; j < bodies.length; j++) {
                Planets b = bodies[j];
                double dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
                double square = dx * dx + dy * dy + dz * dz + 0.01;
                double force = time / (square * Math.sqrt(square));
                a.vx -= dx * b.mass * force;
                a.vy -= dy * b.mass * force;
                a.vz -= dz * b.mass * force;
                b.vx += dx * a.mass * force;
                b.vy += dy * a.mass * force;
                b.vz += dz * a.mass * force;
            }
        }
        for (Planets body : bodies) {
            body.x += time * body.vx;
            body.y += time * body.vy;
            body.z += time * body.vz;
        }
    }

    public static void main(String[] arguments) {
        Planets[] bodies = new Planets[12];
        for (int i = 0; i < bodies.length; i++) bodies[i] = new Planets(i);
        for (int i = 0; i < 1200000; i++) step(bodies, 0.0001);
        StringBuilder text = new StringBuilder();
        for (Planets body : bodies) text.append(Math.round(body.x * 1e6)).append(' ');
        System.out.println(text);
    }
}
