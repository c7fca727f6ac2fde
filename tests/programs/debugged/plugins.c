// Loads and unloads a library twice, for breakpoints in it.
#include <dlfcn.h>

__attribute__((noipa)) void hit(int (*function)(int)) {
    __asm__ volatile("" : : "r"(function));
}

int main(void) {
    int total = 0;
    for (int round = 0; round < 2; round++) {
        void *library = dlopen("/usr/lib/plugin.so", RTLD_NOW);
        if (!library) {
            return 99;
        }
        int (*function)(int) = (int (*)(int))dlsym(library, "plugin");
        hit(function);
        total = function(total);
        dlclose(library);
    }
    return total;
}
