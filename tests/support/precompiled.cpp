// Owner of the headers that the test programs share precompiled (tests/CMakeLists.txt).
int main() { return 0; }
