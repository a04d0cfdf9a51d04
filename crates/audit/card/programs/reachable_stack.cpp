// Addresses in a stack frame that is still there, in a thread-local variable, and on the stack of a waiting thread.
#include <semaphore.h>

#include <thread>

#include "runtime.h"

static thread_local void *volatile local;
static sem_t ready, never;

static APART void allocate(void *volatile *place, size_t bytes) {
    void *address;
    RT(cudaMalloc(&address, bytes));
    *place = address;
    FORGET(address);
}

static void waiting_thread() {
    void *volatile mine;
    allocate(&mine, 4 * MIB);
    clobber_stack();
    sem_post(&ready);
    sem_wait(&never);
    __asm__ volatile("" : : "r"(&mine) : "memory");
}

static APART void end(void *volatile *held) {
    expect_memory(REACHABLE, "device", 3, 7 * MIB);
    expected("");
    __asm__ volatile("" : : "r"(held) : "memory");
    exit(0);
}

int main() {
    sem_init(&ready, 0, 0);
    sem_init(&never, 0, 0);
    std::thread(waiting_thread).detach();
    sem_wait(&ready);
    void *volatile held;
    allocate(&held, MIB);
    allocate(&local, 2 * MIB);
    clobber_stack();
    end(&held);
}
