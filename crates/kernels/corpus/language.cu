// Kernels that use the language: recursion, pointers to functions, virtual functions, the heap, output.
#include <cassert>
#include <cstdio>

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursion(unsigned *to) {
    to[threadIdx.x] = ackermann(2, threadIdx.x % 6);
}

__device__ __noinline__ float square(float a) { return a * a; }
__device__ __noinline__ float half_of(float a) { return a / 2; }
__device__ __noinline__ float negative(float a) { return -a; }
typedef float (*Function)(float);
__device__ Function functions[3] = {square, half_of, negative};

extern "C" __global__ void function_pointers(float *values, const unsigned *which) {
    values[threadIdx.x] = functions[which[threadIdx.x]](values[threadIdx.x]);
}

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ Square(float side) : side(side) {}
    __device__ float area() const override { return side * side; }
};
struct Triangle : Shape {
    float base, height;
    __device__ Triangle(float base, float height) : base(base), height(height) {}
    __device__ float area() const override { return base * height / 2; }
};

extern "C" __global__ void virtual_functions(float *areas) {
    float own = threadIdx.x + 1;
    Shape *shape = threadIdx.x % 3 ? (Shape *)new Triangle(own, 3) : new Square(own);
    areas[threadIdx.x] = shape->area();
    delete shape;
}

extern "C" __global__ void output(unsigned count) {
    if (threadIdx.x < count)
        printf("%u of %u: %5.2f %s %c %lld|%-4d|%#x\n", threadIdx.x, count, threadIdx.x * 1.5, threadIdx.x % 2 ? "odd" : "even",
               'a' + threadIdx.x, -1234567890123ll * threadIdx.x, threadIdx.x, 255);
}

extern "C" __global__ void check(const int *values) {
    assert(values[threadIdx.x] > 0);
}

struct Pair {
    short a;
    double b;
    char c[5];
};

extern "C" __global__ void structures(Pair given, Pair *to, int index) {
    Pair own[4];
    for (int i = 0; i < 4; i++) {
        own[i] = given;
        own[i].a += i;
        own[i].c[i] = 'A' + threadIdx.x;
    }
    to[threadIdx.x] = own[(index + threadIdx.x) % 4];
}

extern "C" __global__ void wide_integers(const unsigned long long *a, const unsigned long long *b, unsigned long long *to) {
    unsigned __int128 product = (unsigned __int128)a[threadIdx.x] * b[threadIdx.x] + ((unsigned __int128)1 << 70);
    to[3 * threadIdx.x] = (unsigned long long)product;
    to[3 * threadIdx.x + 1] = (unsigned long long)(product >> 64);
    to[3 * threadIdx.x + 2] = (unsigned long long)(product / (b[threadIdx.x] | 1));
}

extern "C" __global__ void choices(const int *values, int *to) {
    int own = values[threadIdx.x];
    switch (own) {
    case 0: own = 17; break;
    case 1: own = to[threadIdx.x] * 2; break;
    case 2: own += 5;
    case 3: own *= 3; break;
    case 4: own = -1; break;
    case 5: own = own << 4; break;
    case 6: own = own ^ 0x55; break;
    case 7: return;
    default: own = own / 7 + own % 5;
    }
    to[threadIdx.x] = own;
}

extern "C" __global__ void linked_list(unsigned long long *sum, unsigned count) {
    struct Node {
        Node *next;
        unsigned value;
    };
    Node *list = nullptr;
    for (unsigned i = 0; i < count; i++) list = new Node{list, i * threadIdx.x};
    unsigned long long own = 0;
    while (list) {
        Node *next = list->next;
        own += list->value;
        delete list;
        list = next;
    }
    atomicAdd(sum, own);
}
