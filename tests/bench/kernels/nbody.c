// Bodies under each other's gravity: divisions and square roots in long dependent chains.
#include "kernels.h"

enum { BODIES = 6, STEPS = 20000 };

struct body {
    double place[3], speed[3], mass;
};

static NOINLINE void advance(struct body *bodies, double time) {
    for (int i = 0; i < BODIES; i++)
        for (int j = i + 1; j < BODIES; j++) {
            struct body *a = &bodies[i], *b = &bodies[j];
            double x = a->place[0] - b->place[0];
            double y = a->place[1] - b->place[1];
            double z = a->place[2] - b->place[2];
            // The constant keeps close encounters finite.
            double square = x * x + y * y + z * z + 0.01;
            double pull = time / (square * sqrt(square));
            double on_a = b->mass * pull, on_b = a->mass * pull;
            a->speed[0] -= x * on_a, a->speed[1] -= y * on_a, a->speed[2] -= z * on_a;
            b->speed[0] += x * on_b, b->speed[1] += y * on_b, b->speed[2] += z * on_b;
        }
    for (int i = 0; i < BODIES; i++)
        for (int axis = 0; axis < 3; axis++)
            bodies[i].place[axis] += time * bodies[i].speed[axis];
}

void nbody(unsigned rounds) {
    struct body bodies[BODIES];
    uint32_t random = 5;
    for (int i = 0; i < BODIES; i++) {
        for (int axis = 0; axis < 3; axis++) {
            bodies[i].place[axis] = 8 * next_fraction(&random) - 4;
            bodies[i].speed[axis] = next_fraction(&random) / 2 - 0.25;
        }
        bodies[i].mass = next_fraction(&random) + 0.125;
    }
    for (unsigned round = 0; round < rounds; round++)
        for (int step = 0; step < STEPS; step++)
            advance(bodies, 1.0 / 1024);
    printf("nbody %016llx %.17g\n", (unsigned long long)checksum(bodies, sizeof bodies),
           bodies[0].place[0]);
}
