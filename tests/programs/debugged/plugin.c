// A library that plugins.c loads and unloads.
int plugin(int value) {
    return value + 3;
}
